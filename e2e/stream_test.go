package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A tunnel is a connection through the daemon over which both sides send bytes of
// which each tells its stream, direction and offset, until the test ends it.
// So a byte that is lost, repeated or another stream's is seen at once.
type tunnel struct {
	id   uint64
	pace pace
	conn net.Conn
	stop chan struct{}
	// sent and got are the client's bytes, without the greeting.
	sent, got atomic.Int64
	err       error
	done      sync.WaitGroup
	// received is closed when nothing more comes.
	received chan struct{}
}

// pace says how a stream is used.
type pace int

const (
	paceChat pace = iota // some bytes now and then
	paceIdle             // nothing after the greeting until the end
	paceSlow             // a client that reads little, so that all buffers are full
	paceBulk             // as fast as it goes, to the client
	paceHalf             // the client has finished
	numPaces
)

// streamHello is what a client sends first.
const streamHello = 16

// fillStream makes the bytes of a stream from offset off on.
func fillStream(p []byte, key uint64, off int64) {
	var word [8]byte
	for i := 0; i < len(p); {
		at := off + int64(i)
		x := (uint64(at/8) + key) * 0x9e3779b97f4a7c15
		binary.LittleEndian.PutUint64(word[:], x^x>>29)
		i += copy(p[i:], word[at%8:])
	}
}

// streamSink checks what it is given.
type streamSink struct {
	key  uint64
	off  int64
	want []byte
}

// Write checks the next bytes of the stream.
func (s *streamSink) Write(p []byte) (int, error) {
	if cap(s.want) < len(p) {
		s.want = make([]byte, len(p))
	}
	want := s.want[:len(p)]
	fillStream(want, s.key, s.off)
	for i := range p {
		if p[i] != want[i] {
			return i, fmt.Errorf("%w at byte %d", errCorrupt, s.off+int64(i))
		}
	}
	s.off += int64(len(p))
	return len(p), nil
}

var errCorrupt = errors.New("the stream is not the one that was sent")

// streamOrigin serves streams: it sends until the client asks for the end with
// its FIN, but for a client that has finished at the start, which gets a
// while of bytes. It reports what it finds wrong.
func streamOrigin(t *testing.T, quit <-chan struct{}) int {
	return tcpOrigin(t, func(c net.Conn) {
		hello := make([]byte, streamHello)
		if _, err := io.ReadFull(c, hello); err != nil {
			return
		}
		id, how := binary.BigEndian.Uint64(hello), pace(hello[8])
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if _, err := io.Copy(&streamSink{key: 2 * id}, c); errors.Is(err, errCorrupt) {
				t.Errorf("stream %d, at the server: %v", id, err)
			}
		}()
		stop := (<-chan struct{})(ended)
		if how == paceHalf {
			stop = quit
		}
		_ = sendStream(c, 2*id+1, how, stop, new(atomic.Int64))
		_ = c.(*net.TCPConn).CloseWrite()
		<-ended
	})
}

// sendStream sends until stop is closed.
func sendStream(w io.Writer, key uint64, how pace, stop <-chan struct{}, sent *atomic.Int64) error {
	buf := make([]byte, 64<<10)
	for {
		n, wait := 1+rand.IntN(4000), time.Duration(20+rand.IntN(60))*time.Millisecond
		switch how {
		case paceIdle:
			<-stop
			return nil
		case paceSlow:
			n, wait = len(buf), time.Millisecond
		case paceBulk:
			n, wait = len(buf), 2*time.Millisecond
		}
		fillStream(buf[:n], key, sent.Load())
		n, err := w.Write(buf[:n])
		sent.Add(int64(n))
		if err != nil {
			return err
		}
		select {
		case <-stop:
			return nil
		case <-time.After(wait):
		}
	}
}

// startStream uses a tunnel that is open.
func startStream(t *testing.T, id uint64, how pace, conn net.Conn) *tunnel {
	t.Helper()
	s := &tunnel{id: id, pace: how, conn: conn, stop: make(chan struct{}), received: make(chan struct{})}
	_ = conn.SetDeadline(time.Time{})
	hello := make([]byte, streamHello)
	binary.BigEndian.PutUint64(hello, id)
	hello[8] = byte(how)
	if how == paceSlow {
		_ = conn.(*net.TCPConn).SetReadBuffer(16 << 10)
	}
	if _, err := conn.Write(hello); err != nil {
		t.Fatal(err)
	}
	s.done.Go(func() {
		up := how
		switch how {
		case paceBulk, paceSlow:
			up = paceChat
		case paceHalf:
			_ = conn.(*net.TCPConn).CloseWrite()
			return
		}
		_ = sendStream(conn, 2*id, up, s.stop, &s.sent)
		_ = conn.(*net.TCPConn).CloseWrite()
	})
	s.done.Go(func() {
		s.err = s.receive()
		close(s.received)
	})
	return s
}

// receive checks what comes, to the end of the stream.
func (s *tunnel) receive() error {
	sink := &streamSink{key: 2*s.id + 1}
	buf := make([]byte, 32<<10)
	for {
		p := buf
		if s.pace == paceSlow {
			select {
			case <-s.stop:
			case <-time.After(10 * time.Millisecond):
				p = buf[:2000]
			}
		}
		n, err := s.conn.Read(p)
		if _, wrong := sink.Write(p[:n]); wrong != nil {
			return wrong
		}
		s.got.Add(int64(n))
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// end has the stream come to its end, waits for it, and returns what was
// wrong.
func (s *tunnel) end() error {
	close(s.stop)
	finished := make(chan struct{})
	go func() {
		s.done.Wait()
		close(finished)
	}()
	select {
	case <-finished:
	case <-time.After(2 * patience):
		s.conn.Close()
		<-finished
		return fmt.Errorf("stream %d (pace %d) does not end; %d bytes came", s.id, s.pace, s.got.Load())
	}
	s.conn.Close()
	if s.err != nil {
		return fmt.Errorf("stream %d (pace %d), at the client after %d bytes: %w", s.id, s.pace, s.got.Load(), s.err)
	}
	return nil
}

// alive reports whether the stream goes on.
func (s *tunnel) alive() bool {
	select {
	case <-s.received:
		return false
	default:
		return true
	}
}

// socksVia opens a tunnel through a SOCKS 5 proxy.
func socksVia(t *testing.T, proxy, target int) net.Conn {
	t.Helper()
	c := dial(t, proxy)
	if _, err := c.Write([]byte{5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1, byte(target >> 8), byte(target)}); err != nil {
		t.Fatal(err)
	}
	reply := make([]byte, 12)
	if _, err := io.ReadFull(c, reply); err != nil || reply[3] != 0 {
		t.Fatalf("reply %v, %v", reply, err)
	}
	return c
}
