package supervisor

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"3proxyd/ipc"
)

// holderPatience bounds the question whether the holder of a control socket
// answers.
const holderPatience = 2 * time.Second

// controlHolder describes the daemon that has the control socket at a path, and
// what to do about it. The credentials of the socket (unix(7), SO_PEERCRED) are
// of the daemon that opened it, which may have been replaced since.
func controlHolder(path string) string {
	pid := socketHolder(path)
	ctx, cancel := context.WithTimeout(context.Background(), holderPatience)
	defer cancel()
	client := ipc.NewClient(path)
	client.SetWait(holderPatience)
	_, err := client.Status(ctx)
	switch {
	case pid == 0:
		return "another daemon: stop it"
	case err == nil:
		return fmt.Sprintf("another daemon, process %d: stop it", pid)
	}
	return fmt.Sprintf("process %d, which does not answer: end it with `kill -9 %d`, then the next start takes its workers over", pid, pid)
}

// socketHolder returns a supervisor that has the listening Unix socket at a
// path, 0 when none is found.
func socketHolder(path string) int {
	inode := listeningInode(path)
	if inode == "" {
		return 0
	}
	link := "socket:[" + inode + "]"
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err == nil && pid != os.Getpid() && hasDescriptor(pid, link) {
			return pid
		}
	}
	return 0
}

// listeningInode looks a Unix socket up in /proc/net/unix (proc_net(5)).
func listeningInode(path string) string {
	file, err := os.Open("/proc/self/net/unix")
	if err != nil {
		return ""
	}
	defer file.Close()
	const acceptsConnections = 1 << 16 // __SO_ACCEPTCON
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) != 8 || fields[7] != path {
			continue
		}
		if flags, err := strconv.ParseUint(fields[3], 16, 32); err == nil && flags&acceptsConnections != 0 {
			return fields[6]
		}
	}
	return ""
}

func hasDescriptor(pid int, link string) bool {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	open, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	buf := make([]byte, 64)
	for _, e := range open {
		n, err := unix.Readlink(filepath.Join(dir, e.Name()), buf)
		if err == nil && string(buf[:n]) == link {
			return true
		}
	}
	return false
}
