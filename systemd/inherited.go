package systemd

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// firstFD is SD_LISTEN_FDS_START of sd_listen_fds(3).
	firstFD = 3
	// unnamed is what sd_listen_fds_with_names(3) calls a descriptor without
	// a name.
	unnamed = "unknown"
	// maxName bounds a name, as the manager does (FDNAME_MAX).
	maxName = 255
)

// inheritEnv are the variables about inherited descriptors.
var inheritEnv = []string{"LISTEN_PID", "LISTEN_PIDFDID", "LISTEN_FDS", "LISTEN_FDNAMES"}

// Inherited returns the descriptors the manager has passed to this process,
// from socket units and from the store, described by what the kernel says of
// them. They belong to the caller and are close-on-exec. The variables are
// removed from the environment: a second call returns nothing, and no child
// takes them for its own.
//
// It is an error when the variables are malformed or promise a descriptor that
// was not passed; then none is touched. Variables for another process are
// ignored.
func Inherited() ([]Socket, error) {
	pid, fds, names := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS"), os.Getenv("LISTEN_FDNAMES")
	_, named := os.LookupEnv("LISTEN_FDNAMES")
	for _, name := range inheritEnv {
		_ = os.Unsetenv(name)
	}
	if pid == "" || fds == "" {
		return nil, nil
	}
	mine, err := isOwn(pid)
	if err != nil || !mine {
		return nil, err
	}
	list, err := parseNames(fds, names, named)
	if err != nil {
		return nil, err
	}
	sockets := make([]Socket, 0, min(len(list), 1024))
	for i, name := range list {
		s, err := describeInherited(firstFD+i, name)
		if err != nil {
			return nil, fmt.Errorf("LISTEN_FDS=%s: descriptor %d (%q): %w", fds, firstFD+i, name, err)
		}
		sockets = append(sockets, s)
	}
	for _, s := range sockets {
		unix.CloseOnExec(s.FD)
	}
	return sockets, nil
}

func isOwn(text string) (bool, error) {
	pid, err := strconv.ParseUint(text, 10, 31)
	if err != nil || pid == 0 {
		return false, fmt.Errorf("LISTEN_PID=%q is not a process id", text)
	}
	return int(pid) == os.Getpid(), nil
}

// maxInherited bounds LISTEN_FDS; no process has more descriptors (fs.nr_open).
const maxInherited = 1 << 20

// parseNames returns the name of each descriptor.
func parseNames(fds, names string, named bool) ([]string, error) {
	n, err := strconv.ParseUint(fds, 10, 31)
	if err != nil || n > maxInherited {
		return nil, fmt.Errorf("LISTEN_FDS=%q is not a number of descriptors", fds)
	}
	if !named {
		list := make([]string, n)
		for i := range list {
			list[i] = unnamed
		}
		return list, nil
	}
	if n == 0 && names == "" {
		return nil, nil
	}
	list := strings.Split(names, ":")
	if len(list) != int(n) {
		return nil, fmt.Errorf("LISTEN_FDNAMES has %d names for the %d descriptors of LISTEN_FDS", len(list), n)
	}
	for i, name := range list {
		if err := CheckName(name); name != "" && err != nil {
			return nil, fmt.Errorf("LISTEN_FDNAMES: name %d: %w", i+1, err)
		}
		if name == "" {
			list[i] = unnamed
		}
	}
	return list, nil
}

// CheckName says what is wrong with the name of a descriptor
// (FileDescriptorName=, systemd.socket(5)).
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("the name is empty")
	case len(name) > maxName:
		return fmt.Errorf("the name has %d bytes, at most %d are allowed", len(name), maxName)
	}
	for i := range len(name) {
		if c := name[i]; c < ' ' || c >= 0x7f || c == ':' {
			return fmt.Errorf("%q cannot be in a name", c)
		}
	}
	return nil
}

// describeInherited refuses what the manager cannot have passed: a descriptor
// that is closed on execution was opened by this process itself.
func describeInherited(fd int, name string) (Socket, error) {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	if err != nil {
		return Socket{}, fmt.Errorf("not open: %w", os.NewSyscallError("fcntl", err))
	}
	if flags&unix.FD_CLOEXEC != 0 {
		return Socket{}, errors.New("not inherited")
	}
	return Describe(fd, name)
}
