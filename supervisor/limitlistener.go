package supervisor

import (
	"io"
	"net"
	"sync"
	"time"

	"3proxyd/ipc"
)

// The places of the control socket. Those who may change something have places
// of their own, which nobody else can take.
const (
	privilegedConns = 32
	otherConns      = 16
	// userConns bounds the connections of one user without privilege.
	userConns = 4
	// refusedConns bounds the connections that are being refused,
	// refusalLinger the time each has to take the answer.
	refusedConns  = 32
	refusalLinger = time.Second
)

// refusal is the answer to a connection there is no place for.
const refusal = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n" +
	"Connection: close\r\nContent-Length: 64\r\n\r\n" +
	`{"error":"too many connections to the control socket are open"}` + "\n"

// limitListener refuses connections that there is no place for, so that those
// that wait behind them are reached.
type limitListener struct {
	net.Listener
	privileged func(uid int) bool
	refusing   chan struct{}

	mu   sync.Mutex
	open map[int]int // of users without privilege
	// otherOpen is the sum of open.
	privilegedOpen, otherOpen int
}

func newLimitListener(l net.Listener, privileged func(uid int) bool) *limitListener {
	return &limitListener{Listener: l, privileged: privileged, open: map[int]int{}, refusing: make(chan struct{}, refusedConns)}
}

// Accept waits for a connection that there is a place for.
func (l *limitListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer := peerOf(c)
		if l.take(peer.UID) {
			return &limitedConn{Conn: c, peer: peer, leave: sync.OnceFunc(func() { l.give(peer.UID) })}, nil
		}
		l.refuse(c)
	}
}

// refuse answers when the request begins or a while has passed: a client may
// take an answer that comes before its request for an error. It closes the
// connection when the client has sent all, since one that is still writing would
// see an error of its write instead of the answer. When too many are being
// refused it does all that at once.
func (l *limitListener) refuse(c net.Conn) {
	select {
	case l.refusing <- struct{}{}:
	default:
		_, _ = c.Write([]byte(refusal))
		_ = c.Close()
		return
	}
	go func() {
		defer func() { <-l.refusing }()
		defer c.Close()
		_ = c.SetReadDeadline(time.Now().Add(refusalLinger))
		_, _ = c.Read(make([]byte, 1))
		// A new connection has room for it: the write does not wait.
		_, _ = c.Write([]byte(refusal))
		if u, ok := c.(*net.UnixConn); ok {
			_ = u.CloseWrite()
		}
		_, _ = io.CopyN(io.Discard, c, 2*controlBody)
	}()
}

func (l *limitListener) take(uid int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.privileged(uid) {
		if l.privilegedOpen >= privilegedConns {
			return false
		}
		l.privilegedOpen++
		return true
	}
	if l.otherOpen >= otherConns || l.open[uid] >= userConns {
		return false
	}
	l.otherOpen++
	l.open[uid]++
	return true
}

func (l *limitListener) give(uid int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.privileged(uid) {
		l.privilegedOpen--
		return
	}
	l.otherOpen--
	if l.open[uid]--; l.open[uid] == 0 {
		delete(l.open, uid)
	}
}

type limitedConn struct {
	net.Conn
	peer  ipc.Peer
	leave func()
}

// Close closes the connection and gives its place back.
func (c *limitedConn) Close() error {
	c.leave()
	return c.Conn.Close()
}
