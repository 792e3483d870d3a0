package ipc

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A worker whose supervisor has died, an orphan, goes on serving and waits for
// a successor of the supervisor at an abstract Unix socket of its own. The
// successor connects, and gets
//
//	MsgOrphan      descriptors: the shared memory
//	MsgFiles       any number: the listening sockets
//	MsgOrphanEnd
//
// From then on the connection is the worker's to its supervisor: the successor
// sends MsgDrain when its own workers accept. When it ends before, the worker
// is an orphan again.
const (
	// MsgOrphan is the first message of an orphan.
	MsgOrphan Type = 112
	// MsgOrphanEnd says that all listening sockets have been sent.
	MsgOrphanEnd Type = 113
)

// Orphan is the body of MsgOrphan.
type Orphan struct {
	Version int `json:"version"`
	// Slot, Row and Thread are the worker's slot, its row in the shared memory
	// and the thread of its event loop.
	Slot   int `json:"slot"`
	Row    int `json:"row"`
	Thread int `json:"thread"`
	// Gen is its generation.
	Gen uint64 `json:"gen"`
}

// orphanPrefix begins the names of the sockets of orphans. A daemon's own
// orphans are those with its family: the names of its control socket say which
// daemon it is.
const orphanPrefix = "@3proxyd/orphan/"

const replacedPrefix = "@3proxyd/replaced/"

// Family identifies the processes of one daemon over its restarts by the path
// of its control socket.
func Family(control string) string {
	sum := sha256.Sum256([]byte(control))
	return hex.EncodeToString(sum[:8])
}

// OrphanName returns the name of the socket an orphan waits at.
func OrphanName(family string, pid int) string {
	return fmt.Sprintf("%s%s/%d", orphanPrefix, family, pid)
}

// ReplacedName returns the name of the socket at which a supervisor that an
// upgrade has replaced answers the daemon of the day.
func ReplacedName(family string, pid int) string {
	return fmt.Sprintf("%s%s/%d", replacedPrefix, family, pid)
}

// Replaced returns the replaced supervisors of a daemon in this network
// namespace.
func Replaced(family string) ([]int, error) {
	names, err := boundNames(replacedPrefix + family + "/")
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name[strings.LastIndexByte(name, '/')+1:]); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, err
}

// maxOrphans bounds the orphans that are looked for.
const maxOrphans = MaxRows

// OrphanNames returns the sockets of the orphans of a daemon in this network
// namespace.
func OrphanNames(family string) ([]string, error) {
	return boundNames(orphanPrefix + family + "/")
}

// boundNames returns the names of bound Unix sockets that begin with prefix.
func boundNames(prefix string) ([]string, error) {
	data, err := os.ReadFile("/proc/self/net/unix")
	if err != nil {
		return nil, err
	}
	return namesIn(data, prefix), nil
}

func namesIn(table []byte, prefix string) []string {
	var names []string
	lines := bufio.NewScanner(bytes.NewReader(table))
	for lines.Scan() && len(names) < maxOrphans {
		// Num RefCount Protocol Flags Type St Inode Path
		fields := strings.Fields(lines.Text())
		if len(fields) != 8 || !strings.HasPrefix(fields[7], prefix) {
			continue
		}
		if !slices.Contains(names, fields[7]) {
			names = append(names, fields[7])
		}
	}
	return names
}

// OrphanSocket is where an orphan waits for a successor.
type OrphanSocket struct{ listener *net.UnixListener }

// ListenOrphan opens the socket of this process.
func ListenOrphan(family string) (*OrphanSocket, error) {
	return listenPacket(OrphanName(family, os.Getpid()))
}

// Accept waits for the next process that connects, and says which it is.
func (s *OrphanSocket) Accept() (*Conn, Peer, error) {
	c, err := s.listener.AcceptUnix()
	if err != nil {
		return nil, Peer{}, err
	}
	return takeUnix(c)
}

// Close closes the socket; an Accept under way returns.
func (s *OrphanSocket) Close() error { return s.listener.Close() }

// DialOrphan connects to an orphan, and says which process it is.
func DialOrphan(name string) (*Conn, Peer, error) {
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: name, Net: "unixpacket"})
	if err != nil {
		return nil, Peer{}, err
	}
	return takeUnix(c)
}

// takeUnix makes a Conn of a connected socket, which it closes.
func takeUnix(c *net.UnixConn) (*Conn, Peer, error) {
	defer c.Close()
	peer, err := PeerOf(c)
	if err != nil {
		return nil, Peer{}, err
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, Peer{}, err
	}
	fd, dupErr := -1, error(nil)
	err = raw.Control(func(own uintptr) { fd, dupErr = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) })
	if err == nil {
		err = os.NewSyscallError("fcntl", dupErr)
	}
	if err != nil {
		return nil, Peer{}, err
	}
	conn, err := NewConn(fd)
	if err != nil {
		_ = unix.Close(fd)
	}
	return conn, peer, err
}

// Peer returns the process that made the socket pair, or connected.
func (c *Conn) Peer() (Peer, error) { return PeerOf(c.file) }
