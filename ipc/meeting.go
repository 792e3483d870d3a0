package ipc

import (
	"fmt"
	"net"
	"os"
)

// A replaced daemon hands what it still has to the daemon of the day, which may
// be a later one than its own successor: it connects to an abstract socket of
// that one and sends MsgHandoffMove for each of its workers.

// movesName returns the name of the socket at which a daemon takes sessions.
func movesName(family string, pid int) string {
	return fmt.Sprintf("@3proxyd/moves/%s/%d", family, pid)
}

// ListenMoves opens the socket of this process.
func ListenMoves(family string) (*OrphanSocket, error) {
	return listenPacket(movesName(family, os.Getpid()))
}

// DialMoves connects to the socket of a daemon, and says which process it is.
func DialMoves(family string, pid int) (*Conn, Peer, error) {
	conn, peer, err := DialOrphan(movesName(family, pid))
	if err == nil {
		conn.ForHandoff()
	}
	return conn, peer, err
}

// ForHandoff makes the connection one for the messages of a handoff, as
// NewHandoffConn does.
func (c *Conn) ForHandoff() { c.version, c.readsAfterReset = handoffFrameVersion, true }

func listenPacket(name string) (*OrphanSocket, error) {
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: name, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	return &OrphanSocket{l}, nil
}
