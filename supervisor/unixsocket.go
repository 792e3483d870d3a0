package supervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// socketFile is the file of a Unix socket this process has bound; the zero
// value is none.
type socketFile struct {
	path     string
	dev, ino uint64
}

// fileOfSocket is the file of a Unix socket that an earlier supervisor has
// bound; of an abstract or missing one the zero value.
func fileOfSocket(path string) socketFile {
	var st unix.Stat_t
	if path == "" || path[0] == '@' || unix.Lstat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return socketFile{}
	}
	return socketFile{path: path, dev: uint64(st.Dev), ino: st.Ino}
}

// remove removes the file, unless another process has put its own in its
// place.
func (f socketFile) remove() {
	var st unix.Stat_t
	if f.path == "" || unix.Lstat(f.path, &st) != nil {
		return
	}
	if uint64(st.Dev) == f.dev && st.Ino == f.ino {
		_ = os.Remove(f.path)
	}
}

// lostFile says that the file of an own Unix socket has been removed: nobody can
// connect any more, and a reload makes another, which may have the number of the
// old one: that is not removed any more.
func (l *listener) lostFile() bool {
	l.lost = l.lost || !l.kept && l.file.path != "" && !present(l.file.path)
	return l.lost
}

const lostFileText = "the file of its socket has been removed, and is made again"

// bindUnix binds a stream socket to path, or to an abstract name for "@name".
// A socket file nobody answers at is replaced. The file gets mode, cut by the
// umask, from its first moment on.
func bindUnix(path string, mode uint32) (int, socketFile, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, socketFile{}, os.NewSyscallError("socket", err)
	}
	file, err := bindPath(fd, path, mode)
	if err != nil {
		_ = unix.Close(fd)
		return -1, socketFile{}, err
	}
	return fd, file, nil
}

func bindPath(fd int, path string, mode uint32) (socketFile, error) {
	if len(path) > 107 {
		return socketFile{}, fmt.Errorf("the path has %d bytes, a Unix socket's at most 107", len(path))
	}
	address := &unix.SockaddrUnix{Name: path}
	if strings.HasPrefix(path, "@") {
		return socketFile{}, os.NewSyscallError("bind", unix.Bind(fd, address))
	}
	// bind(2) creates the file with the mode of the socket.
	if err := unix.Fchmod(fd, mode); err != nil {
		return socketFile{}, os.NewSyscallError("fchmod", err)
	}
	err := unix.Bind(fd, address)
	if err == unix.EADDRINUSE {
		if err := removeStale(path); err != nil {
			return socketFile{}, err
		}
		err = unix.Bind(fd, address)
	}
	if err != nil {
		return socketFile{}, os.NewSyscallError("bind", err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return socketFile{}, os.NewSyscallError("lstat", err)
	}
	return socketFile{path: path, dev: uint64(st.Dev), ino: st.Ino}, nil
}

// removeStale removes the socket file of a process that is gone: only when it
// is a socket, and connecting to it is refused.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s exists and is not a socket", path)
	}
	pid, err := probeUnix(path)
	switch {
	case err == nil && pid > 0:
		return fmt.Errorf("process %d answers there: %w", pid, unix.EADDRINUSE)
	case err == nil:
		return unix.EADDRINUSE
	case errors.Is(err, unix.ECONNREFUSED):
		return os.Remove(path)
	}
	return err
}

// probeUnix connects to a Unix socket and returns the process that listens.
func probeUnix(path string) (pid int, err error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
	if err == unix.EAGAIN {
		// Somebody listens, with a full backlog.
		return 0, nil
	}
	if err != nil {
		return 0, os.NewSyscallError("connect", err)
	}
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, nil
	}
	return int(cred.Pid), nil
}
