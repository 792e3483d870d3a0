package ipc

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// Live sessions move from one worker, the source, to another, the target,
// which may be of another generation of the binary. The supervisor makes a
// pair of sockets (MovePair), sends one end with MsgMoveOut to the source and
// the other with MsgMoveIn to the target; the two then speak over it:
//
//	source                                target
//	MoveHello      ─────────────────────▶
//	               ◀─────────────────────  MoveWelcome (or an error: the end)
//	MoveService    ─────────────────────▶  once for each service; its log file
//	MoveSession    ─────────────────────▶  two descriptors: client, server
//	MoveToClient   ─────────────────────▶  bytes that the client has yet to get
//	MoveToServer   ─────────────────────▶  bytes that the server has yet to get
//	               ◀─────────────────────  MoveAnswer: taken, or why not
//	MoveCommit     ─────────────────────▶  the target owns the session now
//	MoveAbort      ─────────────────────▶  or the source keeps it
//	MoveEnd        ─────────────────────▶
//	               ◀─────────────────────  MoveEnd, all commits carried out
//
// Who may touch the sockets: the source until it sends MoveSession, nobody
// until MoveCommit, then the target. The source keeps its duplicates until it
// has sent MoveCommit; a session that is refused, not answered in time, or
// whose target is gone before, goes on where it was. A target that sees the
// end of the channel without MoveCommit closes its duplicates and forgets the
// session. The ID of a frame is the source's number of the session.
//
// The place of the session under maxconn changes its row with MoveCommit, by
// the target, in one step (Shm.Transfer).
const (
	// MoveVersion is the version of these messages; a source offers
	// MinMoveVersion to MoveVersion, and the target chooses. A field that a
	// receiver may ignore does not need a new version.
	MoveVersion    = 1
	MinMoveVersion = 1
)

// moveFrameVersion is the version in the header of these messages. It never
// changes: the versions are agreed upon by MoveHello.
const moveFrameVersion = 1

// Messages between supervisor and worker about moving sessions.
const (
	// MsgMoveOut has a worker move sessions away. Descriptors: the source's
	// end of a MovePair. Answered by MsgMoved.
	MsgMoveOut Type = 40
	// MsgMoveIn has a worker take sessions in. Descriptors: the target's end.
	MsgMoveIn Type = 41
	// MsgMoved answers MsgMoveOut when those sessions have been moved that
	// could be.
	MsgMoved Type = 104
)

// Messages between two workers.
const (
	MsgMoveHello Type = 128 + iota
	MsgMoveWelcome
	// MsgMoveService may carry the descriptor of the service's log file.
	MsgMoveService
	// MsgMoveSession carries the descriptors of client and server.
	MsgMoveSession
	// MsgMoveToClient, MsgMoveToServer have bytes as their body, at most
	// MoveChunk.
	MsgMoveToClient
	MsgMoveToServer
	MsgMoveAnswer
	// MsgMoveCommit, MsgMoveAbort, MsgMoveEnd have no body.
	MsgMoveCommit
	MsgMoveAbort
	MsgMoveEnd
)

const (
	// MoveChunk is the greatest body of MsgMoveToClient and MsgMoveToServer in
	// bytes.
	MoveChunk = 64 << 10
	// MaxMoveOutput is the greatest number of bytes that may wait for one peer
	// of a session that moves.
	MaxMoveOutput = 4 << 20
	// maxMoveName and maxMoveText bound a name and the text for the log.
	maxMoveName = 8 << 10
	maxMoveText = 64 << 10
)

// MoveOut is the body of MsgMoveOut.
type MoveOut struct {
	// Sessions is how many sessions to move at most, the quietest; 0 means all.
	Sessions int `json:"sessions,omitempty"`
	// BytesPerSec, when Sessions is 0, asks for busy sessions that together
	// relay about so many bytes a second.
	BytesPerSec uint64 `json:"bytes_per_second,omitempty"`
	// Follow has sessions that can be moved only later move then, until the
	// worker ends. MsgMoved is sent before.
	Follow bool `json:"follow,omitempty"`
}

// Moved is the body of MsgMoved.
type Moved struct {
	// Sessions have been moved, Kept were refused or could not be sent.
	Sessions int    `json:"sessions"`
	Kept     int    `json:"kept,omitempty"`
	Error    string `json:"error,omitempty"`
}

// MoveHello is the first message of a source.
type MoveHello struct {
	MinVersion int `json:"min_version"`
	Version    int `json:"version"`
	// Row is the source's row in the shared memory, Incarnation what
	// Shm.Incarnation says of it.
	Row         int    `json:"row"`
	Incarnation uint64 `json:"incarnation"`
}

// MoveWelcome answers MoveHello; Error is "" when the target takes sessions.
type MoveWelcome struct {
	Version int    `json:"version"`
	Error   string `json:"error,omitempty"`
}

// AnswerMoveHello chooses the version for a target.
func AnswerMoveHello(h MoveHello) MoveWelcome {
	v := min(h.Version, MoveVersion)
	if v < h.MinVersion || v < MinMoveVersion {
		return MoveWelcome{Error: fmt.Sprintf("the source speaks versions %d to %d of moving sessions, the target %d to %d",
			h.MinVersion, h.Version, MinMoveVersion, MoveVersion)}
	}
	return MoveWelcome{Version: v}
}

// MoveService describes the service that the following sessions began with.
type MoveService struct {
	// Ref is the number by which sessions refer to it.
	Ref     int `json:"ref"`
	Column  int `json:"column"`
	MaxConn int `json:"max_conn"`
	// Config is the config.Service.
	Config json.RawMessage `json:"config"`
	// OldSecrets says that the users of its sessions have other passwords by
	// now than those they were let in with.
	OldSecrets bool `json:"old_secrets,omitempty"`
}

// MoveSession is the body of MsgMoveSession: a session that relays. Times are
// CLOCK_MONOTONIC in milliseconds.
type MoveSession struct {
	Service int `json:"service"`
	// Generation is the one in force in the source: the rules of a later one
	// have not been applied.
	Generation uint64         `json:"generation"`
	Client     netip.AddrPort `json:"client"`
	// Local is where the client connected to, when a PROXY protocol header has
	// said so.
	Local netip.AddrPort `json:"local,omitzero"`
	// Protocol is the name of the client's protocol in the log (%N); "" is that of the
	// service.
	Protocol string `json:"protocol,omitempty"`
	User     []byte `json:"user,omitempty"`
	// Secret is the digest (SHA-256) of the password by which the user was let
	// in, when it is not the present one.
	Secret []byte `json:"secret,omitempty"`
	// Host, Addr, Port and Op are what was asked for.
	Host []byte     `json:"host,omitempty"`
	Addr netip.Addr `json:"addr,omitzero"`
	Port uint16     `json:"port"`
	Op   uint64     `json:"op"`
	// Text is the request line for the log.
	Text       []byte `json:"text,omitempty"`
	Code       int    `json:"code,omitempty"`
	StartedMS  int64  `json:"started_ms"`
	BeganMS    int64  `json:"began_ms"`
	BytesIn    uint64 `json:"bytes_in"`
	BytesOut   uint64 `json:"bytes_out"`
	HalfClosed bool   `json:"half_closed,omitempty"`
	// Unsent is what the peers had not acknowledged at DrainedMS, in bytes.
	Unsent    int   `json:"unsent,omitempty"`
	DrainedMS int64 `json:"drained_ms,omitempty"`

	// Server is the server's address; ServerHost and ServerUser say for which
	// name and user the connection was opened.
	Server     netip.AddrPort `json:"server"`
	ServerHost []byte         `json:"server_host,omitempty"`
	ServerUser []byte         `json:"server_user,omitempty"`

	ClientConn MoveConn `json:"client_conn"`
	ServerConn MoveConn `json:"server_conn"`
	// Up is the direction from the client to the server.
	Up   MoveFlow `json:"up"`
	Down MoveFlow `json:"down"`
}

// MoveConn is the state of one connection.
type MoveConn struct {
	// Output is how many bytes follow in MsgMoveToClient or MsgMoveToServer.
	Output int `json:"output,omitempty"`
	// Shutdown says that a FIN is due after them.
	Shutdown bool `json:"shutdown,omitempty"`
	// Broken says that the peer has reset the connection.
	Broken             bool  `json:"broken,omitempty"`
	DistrustShortReads bool  `json:"distrust_short_reads,omitempty"`
	Unwritten          bool  `json:"unwritten,omitempty"`
	Nagle              bool  `json:"nagle,omitempty"`
	ReadSize           int   `json:"read_size,omitempty"`
	FlushedMS          int64 `json:"flushed_ms,omitempty"`
}

// MoveFlow is the state of one direction.
type MoveFlow struct {
	// Active is false when the direction has ended.
	Active   bool  `json:"active"`
	Splicing bool  `json:"splicing,omitempty"`
	Streak   uint8 `json:"streak,omitempty"`
	LastMS   int64 `json:"last_ms,omitempty"`
}

// MoveAnswer is the body of MsgMoveAnswer. Error is "" when the target has the
// session ready; Full says that it will refuse all others as well.
type MoveAnswer struct {
	Error string `json:"error,omitempty"`
	Full  bool   `json:"full,omitempty"`
}

// Validate reports what of a session is out of bounds.
func (s *MoveSession) Validate() error {
	switch {
	case len(s.User) > maxMoveName, len(s.Host) > maxMoveName,
		len(s.ServerHost) > maxMoveName, len(s.ServerUser) > maxMoveName:
		return errors.New("a name is too long")
	case len(s.Text) > maxMoveText:
		return errors.New("the text is too long")
	case len(s.Secret) != 0 && len(s.Secret) != sha256.Size:
		return errors.New("the digest of a secret has the wrong length")
	case s.Unsent < 0:
		return errors.New("unsent is negative")
	}
	for _, c := range []MoveConn{s.ClientConn, s.ServerConn} {
		if c.Output < 0 || c.Output > MaxMoveOutput {
			return fmt.Errorf("%d bytes of output are not within 0 and %d", c.Output, MaxMoveOutput)
		}
		if c.ReadSize < 0 {
			return errors.New("the size of reads is negative")
		}
	}
	return nil
}

// Raw is a body that is sent as it is, not as JSON.
type Raw []byte

// MovePair returns the two ends of a channel between workers, as files to be
// sent with MsgMoveOut and MsgMoveIn and then closed.
func MovePair() (out, in *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	return os.NewFile(uintptr(fds[0]), "move out"), os.NewFile(uintptr(fds[1]), "move in"), nil
}

// NewMoveConn makes a Conn for the messages between two workers; see NewConn.
// Its Recv returns what the peer sent before it died with unread packets.
func NewMoveConn(fd int) (*Conn, error) {
	c, err := NewConn(fd)
	if err == nil {
		c.version, c.readsAfterReset = moveFrameVersion, true
	}
	return c, err
}
