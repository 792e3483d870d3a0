package e2e

import (
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"3proxyd/ipc"
	"3proxyd/supervisor"
)

// fakeModeEnv makes the test binary a successor that misbehaves.
const fakeModeEnv = "E2E_FAKE_SUCCESSOR"

// fakeSuccessor returns a program that takes part in an upgrade and fails in a
// certain way.
func fakeSuccessor(t *testing.T, mode string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return script(t, fmt.Sprintf("%s='%s' exec '%s' \"$@\"", fakeModeEnv, mode, self))
}

// isFake says that this process is to be such a program.
func isFake() bool {
	return os.Getenv(supervisor.RoleEnv) == supervisor.RoleSuccessor && os.Getenv(fakeModeEnv) != ""
}

// runFake plays the successor; it returns the exit code.
func runFake() int {
	mode := os.Getenv(fakeModeEnv)
	if mode == "garbage" {
		_, _ = unix.Write(ipc.HandoffFD, []byte("this is no frame at all"))
		time.Sleep(time.Hour)
	}
	conn, err := ipc.NewHandoffConn(ipc.HandoffFD)
	if err != nil {
		return 1
	}
	hello := ipc.HandoffHello{Min: ipc.HandoffMin, Max: ipc.HandoffMax, Version: "fake", PID: os.Getpid()}
	if mode == "version" {
		hello.Min, hello.Max = 98, 99
	}
	_ = conn.Send(ipc.MsgHandoffHello, 0, hello)
	if mode == "disorder" {
		_ = conn.Send(ipc.MsgHandoffTakenOver, 0, nil)
	}
	if mode == "silent" {
		time.Sleep(time.Hour)
	}
	taken := 0
	for {
		m, err := conn.Recv()
		if err != nil {
			return 4
		}
		switch {
		case m.Type == ipc.MsgHandoffCancel,
			m.Type == ipc.MsgHandoffGo && mode == "dies on go",
			m.Type == ipc.MsgHandoffCheck && mode == "dies on check",
			m.Type == ipc.MsgHandoffTakeover:
			return 5
		case m.Type == ipc.MsgHandoffFiles:
			taken += len(m.FDs)
			_ = conn.Send(ipc.MsgHandoffAck, 0, ipc.HandoffFiles{})
			// Three services with two sockets each, the control socket, the
			// supervisor and two workers.
			if taken == 10 {
				_ = conn.Send(ipc.MsgHandoffReady, 0, ipc.HandoffReady{Generation: 7})
			}
		case m.Type == ipc.MsgHandoffGo || m.Type == ipc.MsgHandoffCheck:
			_ = conn.Send(ipc.MsgHandoffServing, 0, nil)
		}
	}
}
