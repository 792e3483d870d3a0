package systemd

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// childEnv makes the test binary print what it inherits.
const childEnv = "SYSTEMD_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(printInherited())
	}
	os.Exit(m.Run())
}

// report is what a child says.
type report struct {
	Sockets []Socket
	Error   string
	// Left are variables still in the environment, Open descriptors a child
	// of it would inherit.
	Left []string
	Open []int
}

func printInherited() int {
	if os.Getenv("LISTEN_PID") == "own" {
		os.Setenv("LISTEN_PID", fmt.Sprint(os.Getpid()))
	}
	var r report
	var err error
	r.Sockets, err = Inherited()
	if err != nil {
		r.Error = err.Error()
	}
	for _, name := range inheritEnv {
		if v, ok := os.LookupEnv(name); ok {
			r.Left = append(r.Left, name+"="+v)
		}
	}
	for fd := firstFD; fd < firstFD+6; fd++ {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			r.Open = append(r.Open, fd)
		}
	}
	if json.NewEncoder(os.Stdout).Encode(r) != nil {
		return 1
	}
	return 0
}

func inherit(t *testing.T, files []*os.File, env ...string) report {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(env, childEnv+"=1")
	cmd.ExtraFiles = files
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if len(r.Left) > 0 {
		t.Errorf("left in the environment: %v", r.Left)
	}
	return r
}

type filer interface{ File() (*os.File, error) }

// fileOf returns a duplicate of a socket's descriptor.
func fileOf(t *testing.T, s any, err error) *os.File {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	f, err := s.(filer).File()
	if err != nil {
		t.Fatal(err)
	}
	if c, ok := s.(interface{ Close() error }); ok {
		t.Cleanup(func() { c.Close() })
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestInherited(t *testing.T) {
	dir := t.TempDir()
	tcp, err := net.Listen("tcp4", "127.0.0.1:0")
	tcpFile := fileOf(t, tcp, err)
	udp, err := net.ListenPacket("udp4", "127.0.0.1:0")
	udpFile := fileOf(t, udp, err)
	stream, err := net.Listen("unix", filepath.Join(dir, "s"))
	streamFile := fileOf(t, stream, err)
	abstract, err := net.Listen("unixpacket", "@"+dir)
	abstractFile := fileOf(t, abstract, err)
	conn, err := net.Dial("tcp4", tcp.Addr().String())
	connFile := fileOf(t, conn, err)
	plain, err := os.Create(filepath.Join(dir, "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()

	files := []*os.File{tcpFile, udpFile, streamFile, abstractFile, connFile, plain}
	r := inherit(t, files, "LISTEN_PID=own", "LISTEN_FDS=6", "LISTEN_FDNAMES=web:dns::a b:x:f")
	if r.Error != "" || len(r.Sockets) != 6 || len(r.Open) != 0 {
		t.Fatalf("%+v", r)
	}
	want := []string{
		"3 web tcp " + tcp.Addr().String() + " true",
		"4 dns udp " + udp.LocalAddr().String() + " false",
		"5 unknown unix " + dir + "/s true",
		"6 a b unixpacket @" + dir + " true",
		"7 x tcp " + conn.LocalAddr().String() + " false",
		"8 f neither a TCP, UDP or Unix socket nor a memfd false",
	}
	for i, s := range r.Sockets {
		if got := fmt.Sprint(s.FD, " ", s.Name, " ", s, " ", s.Listening); got != want[i] {
			t.Errorf("got %s\nwant %s", got, want[i])
		}
	}
}

func TestInheritedFlags(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Skip("no IPv6: ", err)
	}
	defer unix.Close(fd)
	for _, option := range []int{0, 1} {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, option); err != nil {
			t.Fatal(err)
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, option); err != nil {
			t.Fatal(err)
		}
		s, err := Describe(fd, "x")
		if err != nil || s.V6Only != (option == 1) || s.ReusePort != (option == 1) || s.DualStack() != (option == 0) || s.Cookie == 0 {
			t.Errorf("%d: %+v, %v", option, s, err)
		}
	}
}

func TestInheritedHostile(t *testing.T) {
	plain, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	cases := []struct{ env, want string }{
		{"", ""},
		{"LISTEN_FDS=1", ""},
		{"LISTEN_PID=own", ""},
		{"LISTEN_PID=1 LISTEN_FDS=1", ""},
		{"LISTEN_PID=1 LISTEN_FDS=many", ""},
		{"LISTEN_PID=own LISTEN_FDS=0", ""},
		{"LISTEN_PID=own LISTEN_FDS=0 LISTEN_FDNAMES=", ""},
		{"LISTEN_PID=-1 LISTEN_FDS=1", "LISTEN_PID="},
		{"LISTEN_PID=0 LISTEN_FDS=1", "LISTEN_PID="},
		{"LISTEN_PID=99999999999999999999 LISTEN_FDS=1", "LISTEN_PID="},
		{"LISTEN_PID=1x LISTEN_FDS=1", "LISTEN_PID="},
		{"LISTEN_PID=own LISTEN_FDS=x", "LISTEN_FDS="},
		{"LISTEN_PID=own LISTEN_FDS=-1", "LISTEN_FDS="},
		{"LISTEN_PID=own LISTEN_FDS=+1", "LISTEN_FDS="},
		{"LISTEN_PID=own LISTEN_FDS=4294967297", "LISTEN_FDS="},
		{"LISTEN_PID=own LISTEN_FDS=2147483647", "LISTEN_FDS="},
		{"LISTEN_PID=own LISTEN_FDS=1048576", "descriptor"},
		{"LISTEN_PID=own LISTEN_FDS=40", "descriptor"},
		{"LISTEN_PID=own LISTEN_FDS=1 LISTEN_FDNAMES=a:b", "LISTEN_FDNAMES"},
		{"LISTEN_PID=own LISTEN_FDS=2 LISTEN_FDNAMES=a", "LISTEN_FDNAMES"},
		{"LISTEN_PID=own LISTEN_FDS=0 LISTEN_FDNAMES=a", "LISTEN_FDNAMES"},
		{"LISTEN_PID=own LISTEN_FDS=1 LISTEN_FDNAMES=a\tb", "LISTEN_FDNAMES"},
		{"LISTEN_PID=own LISTEN_FDS=1 LISTEN_FDNAMES=\xff", "LISTEN_FDNAMES"},
		{"LISTEN_PID=own LISTEN_FDS=1 LISTEN_FDNAMES=" + strings.Repeat("x", 256), "LISTEN_FDNAMES"},
	}
	for _, c := range cases {
		r := inherit(t, []*os.File{plain}, strings.Fields(strings.ReplaceAll(c.env, "\t", "\x01"))...)
		if c.want == "" && r.Error != "" || !strings.Contains(r.Error, c.want) || len(r.Sockets) > 0 {
			t.Errorf("%s: %+v", c.env, r)
		}
	}
}

func FuzzParseNames(f *testing.F) {
	f.Add("1", "a", true)
	f.Add("2", "a:b", true)
	f.Add("3", "::", true)
	f.Add("-1", "", false)
	f.Add("1000", "", false)
	f.Fuzz(func(t *testing.T, fds, names string, named bool) {
		list, err := parseNames(fds, names, named)
		if err != nil {
			return
		}
		if fmt.Sprint(len(list)) != strings.TrimLeft(fds, "0") && len(list) > 0 {
			t.Errorf("%q: %d names", fds, len(list))
		}
		for _, name := range list {
			if CheckName(name) != nil {
				t.Errorf("%q", name)
			}
		}
	})
}
