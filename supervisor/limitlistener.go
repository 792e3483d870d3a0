package supervisor

import (
	"net"
	"sync"
)

// limitListener accepts a connection only when fewer than its limit are open.
type limitListener struct {
	net.Listener
	places chan struct{}
	closed chan struct{}
	once   sync.Once
}

func newLimitListener(l net.Listener, limit int) *limitListener {
	return &limitListener{Listener: l, places: make(chan struct{}, limit), closed: make(chan struct{})}
}

// Accept waits for a free place and a connection.
func (l *limitListener) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	return &limitedConn{Conn: c, leave: sync.OnceFunc(func() { <-l.places })}, nil
}

// Close closes the listener, not the accepted connections.
func (l *limitListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type limitedConn struct {
	net.Conn
	leave func()
}

// Close closes the connection and gives its place back.
func (c *limitedConn) Close() error {
	c.leave()
	return c.Conn.Close()
}
