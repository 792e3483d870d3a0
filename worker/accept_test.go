package worker

import (
	"net"
	"testing"
	"time"
)

// What is in the queue, and its bytes, are not touched; nothing new comes.
func TestDropSYN(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		var config net.ListenConfig
		config.SetMultipathTCP(false)
		l, err := config.Listen(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		before, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer before.Close()
		raw, err := l.(*net.TCPListener).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if err := raw.Control(func(fd uintptr) { dropSYN(int(fd)) }); err != nil {
			t.Fatal(err)
		}
		if c, err := net.DialTimeout("tcp", l.Addr().String(), 50*time.Millisecond); err == nil {
			c.Close()
			t.Errorf("%s: a connection was made", address)
		}
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		write(t, before, "hello")
		b := make([]byte, 5)
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := c.Read(b); err != nil || string(b) != "hello" {
			t.Errorf("%s: %q, %v", address, b, err)
		}
	}
}
