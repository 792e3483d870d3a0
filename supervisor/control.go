package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"3proxyd/config"
	"3proxyd/ipc"
	"3proxyd/systemd"
)

const (
	// controlBacklog bounds the connections that wait to be accepted.
	controlBacklog = 128
	// controlWrite bounds the time a client may take to read an answer, or a
	// part of a stream.
	controlWrite = 10 * time.Second
	// controlBody bounds the body of a request in bytes.
	controlBody = 64 << 10
)

// controlServer is the control socket. Who may connect is decided by the
// file's mode; who may change something, by the peer's user id as well.
type controlServer struct {
	path string
	file socketFile
	// fd is the listening socket, of which listener has a duplicate.
	fd       int
	listener net.Listener
	server   http.Server
	// borrowed says that the socket is an earlier supervisor's, which others
	// may take over until this one has started.
	borrowed bool
	// owner is the user besides root and the daemon's own who may change
	// something.
	owner int
}

// listenControl opens the control socket.
func listenControl(c config.Control, inherited *inheritance) (*controlServer, error) {
	paths := controlPaths(c)
	if s := inheritControl(c, inherited, func(path string) bool { return slices.Contains(paths, path) && present(path) }); s != nil {
		return s, nil
	}
	var s *controlServer
	var path string
	var err error
	for _, path = range paths {
		s, err = openControl(c, path)
		if err == nil {
			return s, nil
		}
		if s := inheritRemoved(c, inherited, path, err); s != nil {
			return s, nil
		}
		if !errors.Is(err, errNoDirectory) {
			break
		}
	}
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("control socket %s is in use by %s, or name another path with `control PATH` (%w)", path, controlHolder(path), unix.EADDRINUSE)
	}
	return nil, fmt.Errorf("control socket %s: %w", path, err)
}

// controlPaths are the places of the control socket, each to be taken when the
// directory of the one before cannot be made.
func controlPaths(c config.Control) []string {
	if c.Path != "" {
		return []string{c.Path}
	}
	return ipc.ControlPaths(os.Geteuid(), os.Getenv("XDG_RUNTIME_DIR"))
}

// errNoDirectory is the error of a default path whose directory cannot be
// made: the file system is read-only, or the parent is missing.
var errNoDirectory = errors.New("its directory cannot be made")

func openControl(c config.Control, path string) (*controlServer, error) {
	s := &controlServer{path: path, owner: os.Geteuid()}
	if c.Path == "" {
		if err := controlDir(filepath.Dir(s.path)); err != nil {
			return nil, err
		}
	}
	// Until the owner is set nobody else may connect.
	fd, file, err := bindUnix(s.path, controlMode(c)&0o700)
	if err != nil {
		return nil, err
	}
	s.file = file
	if err := s.setUp(fd, c); err != nil {
		_ = unix.Close(fd)
		file.remove()
		return nil, err
	}
	return s, nil
}

// inheritRemoved goes on with the control socket of an earlier supervisor at a path
// whose file has been removed and cannot be made: it can be again when its
// directory is back (watchControl), and another path would not be looked at.
func inheritRemoved(c config.Control, inherited *inheritance, path string, why error) *controlServer {
	if errors.Is(why, unix.EADDRINUSE) {
		return nil
	}
	return inheritControl(c, inherited, func(earlier string) bool { return earlier == path })
}

// inheritControl goes on with the control socket of an earlier supervisor, if
// it is at a path that fits; nil when there is none that works.
func inheritControl(c config.Control, inherited *inheritance, fits func(path string) bool) *controlServer {
	found := inherited.take(func(s systemd.Socket) bool {
		return s.Name == controlStoreName && s.Network == "unix" && s.Listening && fits(s.Path)
	})
	if len(found) == 0 {
		return nil
	}
	for _, surplus := range found[1:] {
		_ = unix.Close(surplus.FD)
	}
	path := found[0].Path
	s := &controlServer{path: path, owner: os.Geteuid(), file: fileOfSocket(path), borrowed: true}
	if err := s.setUp(found[0].FD, c); err != nil {
		_ = unix.Close(found[0].FD)
		return nil
	}
	return s
}

// setUp gives the socket at fd its owner and mode and starts to listen. On
// success fd is used up.
func (s *controlServer) setUp(fd int, c config.Control) error {
	uid, gid, err := lookupOwner(c.Owner)
	if err != nil {
		return err
	}
	if err := s.open(fd, controlMode(c), uid, gid); err != nil {
		return err
	}
	if uid >= 0 {
		s.owner = uid
	}
	return nil
}

func controlMode(c config.Control) uint32 {
	if c.Mode == 0 {
		return 0o600
	}
	return c.Mode
}

// open sets the file's owner and mode and starts to listen. On success fd is
// used up.
func (s *controlServer) open(fd int, mode uint32, uid, gid int) error {
	if s.file.path != "" {
		if uid >= 0 || gid >= 0 {
			if err := os.Chown(s.path, uid, gid); err != nil {
				return err
			}
		}
		if err := os.Chmod(s.path, fs.FileMode(mode)); err != nil {
			return err
		}
	}
	if err := unix.Listen(fd, controlBacklog); err != nil {
		return os.NewSyscallError("listen", err)
	}
	duplicate, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	file := os.NewFile(uintptr(duplicate), s.path)
	defer file.Close()
	s.listener, err = net.FileListener(file)
	if err == nil {
		s.fd = fd
	}
	return err
}

// controlDir makes the directory of a default path. One that belongs to
// another user, or that others may write to, is refused.
func controlDir(dir string) error {
	mode := fs.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o755
	}
	err := os.Mkdir(dir, mode)
	if errors.Is(err, unix.EROFS) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: %w", errNoDirectory, err)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s is not a directory that only user %d may write to", dir, os.Geteuid())
	}
	return nil
}

// lookupOwner resolves "user" or "user:group", by name or number; -1 means
// unchanged.
func lookupOwner(owner string) (uid, gid int, err error) {
	name, group, _ := strings.Cut(owner, ":")
	uid, gid = -1, -1
	if name != "" {
		uid, err = lookupID(name, func(n string) (string, error) {
			u, err := user.Lookup(n)
			if err != nil {
				return "", err
			}
			return u.Uid, nil
		})
	}
	if err == nil && group != "" {
		gid, err = lookupID(group, func(n string) (string, error) {
			g, err := user.LookupGroup(n)
			if err != nil {
				return "", err
			}
			return g.Gid, nil
		})
	}
	return uid, gid, err
}

func lookupID(name string, lookup func(string) (string, error)) (int, error) {
	if id, err := strconv.Atoi(name); err == nil {
		return id, nil
	}
	text, err := lookup(name)
	if err != nil {
		return -1, err
	}
	return strconv.Atoi(text)
}

type peerKey struct{}

// serve answers requests until close.
func (s *controlServer) serve(d *daemon) {
	s.server = http.Server{
		Handler:           &controlAPI{d, s.privileged},
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      2 * time.Minute,
		IdleTimeout:       30 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ConnContext:       withPeer,
	}
	s.answer(s.listener)
}

// answer answers the clients of one listener until it is closed.
func (s *controlServer) answer(listener net.Listener) {
	_ = s.server.Serve(newLimitListener(listener, s.privileged))
}

// withPeer notes who a client of a limitListener is.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	peer := ipc.Peer{UID: -1, GID: -1}
	if limited, ok := c.(*limitedConn); ok {
		peer = limited.peer
	}
	return context.WithValue(ctx, peerKey{}, peer)
}

// privileged says whether a user may change something.
func (s *controlServer) privileged(uid int) bool {
	return uid == 0 || uid == os.Geteuid() || uid >= 0 && uid == s.owner
}

// peerOf returns the credentials of a client; an unknown one has user id -1.
func peerOf(c net.Conn) ipc.Peer {
	if raw, ok := c.(syscall.Conn); ok {
		if peer, err := ipc.PeerOf(raw); err == nil {
			return peer
		}
	}
	return ipc.Peer{UID: -1, GID: -1}
}

// stopAccepting leaves new clients to another daemon, which has the socket as
// well; those that are here are answered.
func (s *controlServer) stopAccepting() {
	_ = s.listener.Close()
	_ = unix.Close(s.fd)
	s.fd = -1
}

// close stops answering and removes the socket's file.
func (s *controlServer) close() {
	if !s.borrowed {
		s.file.remove()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if s.server.Shutdown(ctx) != nil {
		_ = s.server.Close()
	}
	_ = s.listener.Close()
	if s.fd >= 0 {
		_ = unix.Close(s.fd)
	}
}
