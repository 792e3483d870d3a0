package e2e

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// mixedLoad makes short connections of every kind, each with its answer
// checked, until end is called. No failure is allowed.
type mixedLoad struct {
	t       *testing.T
	quit    chan struct{}
	clients sync.WaitGroup
	made    atomic.Int64
	mu      sync.Mutex
	failed  map[string]int
}

// mixedPorts are the ports of a daemon's services, and of the servers behind.
type mixedPorts struct{ proxy, socks, tcppm, echo, http int }

func mixedConfig(p mixedPorts, head string) string {
	return fmt.Sprintf("%sauth none\ninternal 127.0.0.1\nproxy -p%d\nsocks -p%d\ntcppm %d 127.0.0.1 %d\n",
		head, p.proxy, p.socks, p.tcppm, p.echo)
}

func newMixedPorts(t *testing.T) mixedPorts {
	t.Helper()
	return mixedPorts{port(t), port(t), port(t), echoOrigin(t), newOrigin(t, false).port}
}

func startMixed(t *testing.T, p mixedPorts, clientsEach int) *mixedLoad {
	t.Helper()
	l := &mixedLoad{t: t, quit: make(chan struct{}), failed: map[string]int{}}
	for name, once := range map[string]func() error{
		"GET":     func() error { return shortGet(p.proxy, p.http) },
		"CONNECT": func() error { return shortTunnel(p.proxy, connectTo(p.echo)) },
		"SOCKS":   func() error { return shortTunnel(p.socks, socksTo(p.echo)) },
		"tcppm":   func() error { return shortTunnel(p.tcppm, nil) },
	} {
		for range clientsEach {
			l.clients.Go(func() { l.run(name, once) })
		}
	}
	return l
}

func (l *mixedLoad) run(name string, once func() error) {
	for {
		select {
		case <-l.quit:
			return
		default:
		}
		err := once()
		l.made.Add(1)
		if err == nil {
			continue
		}
		l.mu.Lock()
		l.failed[fmt.Sprintf("%s: %v", name, classify(err))]++
		l.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
}

// classify makes errors that differ only in ports the same.
func classify(err error) error {
	for _, kind := range []error{syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EPIPE, io.ErrUnexpectedEOF, io.EOF} {
		if errors.Is(err, kind) {
			return kind
		}
	}
	return err
}

// end stops the clients and fails the test for every failure.
func (l *mixedLoad) end() {
	l.t.Helper()
	close(l.quit)
	l.clients.Wait()
	l.t.Logf("%d connections", l.made.Load())
	for what, n := range l.failed {
		l.t.Errorf("%d of %d connections failed: %s", n, l.made.Load(), what)
	}
}

func dialPort(p int) (net.Conn, error) {
	c, err := net.DialTimeout("tcp4", fmt.Sprintf("127.0.0.1:%d", p), patience)
	if err == nil {
		_ = c.SetDeadline(time.Now().Add(patience))
	}
	return c, err
}

// shortGet makes one request through an HTTP proxy on a connection of its own.
func shortGet(proxy, origin int) error {
	c, err := dialPort(proxy)
	if err != nil {
		return err
	}
	defer c.Close()
	url := fmt.Sprintf("http://127.0.0.1:%d/", origin)
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n\r\n", url, origin); err != nil {
		return err
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && (answer.StatusCode != 200 || string(body) != "hello\n") {
		err = fmt.Errorf("answer %d %q", answer.StatusCode, body)
	}
	return err
}

// shortTunnel opens a tunnel to an echo server and pings it.
func shortTunnel(p int, open func(net.Conn) error) error {
	c, err := dialPort(p)
	if err != nil {
		return err
	}
	defer c.Close()
	if open != nil {
		if err := open(c); err != nil {
			return err
		}
	}
	return ping(c)
}

// connectTo opens a tunnel by CONNECT.
func connectTo(target int) func(net.Conn) error {
	return func(c net.Conn) error {
		if _, err := fmt.Fprintf(c, "CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n", target, target); err != nil {
			return err
		}
		var head []byte
		b := make([]byte, 1)
		for !bytes.HasSuffix(head, []byte("\r\n\r\n")) {
			if _, err := io.ReadFull(c, b); err != nil {
				return err
			}
			head = append(head, b[0])
		}
		if !bytes.HasPrefix(head, []byte("HTTP/1.1 200 ")) {
			return fmt.Errorf("CONNECT was answered %q", head)
		}
		return nil
	}
}

// socksTo opens a tunnel by SOCKS 5 (RFC 1928).
func socksTo(target int) func(net.Conn) error {
	return func(c net.Conn) error {
		request := []byte{5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1}
		request = binary.BigEndian.AppendUint16(request, uint16(target))
		if _, err := c.Write(request[:3]); err != nil {
			return err
		}
		answer := make([]byte, 2)
		if _, err := io.ReadFull(c, answer); err != nil {
			return err
		}
		if _, err := c.Write(request[3:]); err != nil {
			return err
		}
		answer = make([]byte, 10)
		if _, err := io.ReadFull(c, answer); err != nil {
			return err
		}
		if answer[1] != 0 {
			return fmt.Errorf("SOCKS was answered %v", answer)
		}
		return nil
	}
}

// wordStream sends numbered words through a tunnel to an echo server and checks
// that each comes back in its place, until end is called.
type wordStream struct {
	c    net.Conn
	quit chan struct{}
	done chan error
	sent uint64
}

// startStreams opens n streams, by turns through each kind of service.
func startStreams(t *testing.T, p mixedPorts, n int) []*wordStream {
	t.Helper()
	list := make([]*wordStream, n)
	for i := range list {
		through := []int{p.proxy, p.socks, p.tcppm}[i%3]
		open := []func(net.Conn) error{connectTo(p.echo), socksTo(p.echo), func(net.Conn) error { return nil }}[i%3]
		c, err := dialPort(through)
		if err == nil {
			err = open(c)
		}
		if err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Time{})
		list[i] = &wordStream{c: c, quit: make(chan struct{}), done: make(chan error, 2)}
		go list[i].write()
		go list[i].read()
	}
	return list
}

// words is the number of numbers sent at once.
const words = 512

func (s *wordStream) write() {
	b := make([]byte, 8*words)
	for {
		select {
		case <-s.quit:
			s.done <- s.c.(*net.TCPConn).CloseWrite()
			return
		default:
		}
		for i := range words {
			binary.BigEndian.PutUint64(b[8*i:], s.sent+uint64(i))
		}
		if _, err := s.c.Write(b); err != nil {
			s.done <- err
			return
		}
		s.sent += words
		time.Sleep(2 * time.Millisecond)
	}
}

func (s *wordStream) read() {
	r := bufio.NewReaderSize(s.c, 64<<10)
	b := make([]byte, 8)
	for want := uint64(0); ; want++ {
		_, err := io.ReadFull(r, b)
		if err == io.EOF {
			err = nil
			if want != s.sent {
				err = fmt.Errorf("%d of %d words came back", want, s.sent)
			}
			s.done <- err
			return
		}
		if err != nil {
			s.done <- fmt.Errorf("after %d words: %w", want, err)
			return
		}
		if got := binary.BigEndian.Uint64(b); got != want {
			s.done <- fmt.Errorf("word %d instead of %d", got, want)
			return
		}
	}
}

// endStreams ends the streams in order and checks that nothing was lost.
func endStreams(t *testing.T, list []*wordStream) {
	t.Helper()
	for _, s := range list {
		close(s.quit)
	}
	for i, s := range list {
		_ = s.c.SetDeadline(time.Now().Add(patience))
		for range 2 {
			if err := <-s.done; err != nil {
				t.Errorf("stream %d: %v", i, err)
			}
		}
		s.c.Close()
	}
}
