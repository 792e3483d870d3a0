package e2e

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// load makes connections to a port, each for one ping, until stop is called.
type load struct {
	served, refused, failed atomic.Int64
	mu                      sync.Mutex
	first                   error
	quit                    chan struct{}
	clients                 sync.WaitGroup
}

func newLoad(port, clients int) *load {
	l := &load{quit: make(chan struct{})}
	for range clients {
		l.clients.Go(func() {
			for {
				select {
				case <-l.quit:
					return
				default:
				}
				l.once(port)
			}
		})
	}
	return l
}

func (l *load) once(port int) {
	c, err := net.DialTimeout("tcp4", fmt.Sprintf("127.0.0.1:%d", port), patience)
	if errors.Is(err, syscall.ECONNREFUSED) {
		l.refused.Add(1)
		time.Sleep(time.Millisecond)
		return
	}
	if err == nil {
		_ = c.SetDeadline(time.Now().Add(patience))
		err = ping(c)
		c.Close()
	}
	if err == nil {
		l.served.Add(1)
		return
	}
	l.failed.Add(1)
	l.mu.Lock()
	if l.first == nil {
		l.first = err
	}
	l.mu.Unlock()
}

// stop ends the clients and returns the first failure.
func (l *load) stop() error {
	close(l.quit)
	l.clients.Wait()
	return l.first
}

// TestDrainWorkersUnderLoad replaces workers again and again; no connection may
// be refused, reset or left without an answer.
func TestDrainWorkersUnderLoad(t *testing.T) {
	t.Parallel()
	echo, ppm := echoOrigin(t), port(t)
	d := start(t, fmt.Sprintf("workers 2\nauth none\ninternal 127.0.0.1\ntcppm %d 127.0.0.1 %d\n", ppm, echo))
	l := newLoad(ppm, 4)
	for i := range 10 {
		if _, stderr, code := d.ctl("drain", "--worker", fmt.Sprint(i%2)); code != 0 {
			t.Errorf("drain: %s", stderr)
		}
	}
	err := l.stop()
	t.Logf("%d connections were served", l.served.Load())
	if err != nil || l.refused.Load() > 0 {
		t.Errorf("%d connections failed (%v), %d were refused", l.failed.Load(), err, l.refused.Load())
	}
}

// TestDrainUnderLoad ends a daemon under load: a client is served or refused,
// but not accepted and dropped.
func TestDrainUnderLoad(t *testing.T) {
	t.Parallel()
	echo, ppm := echoOrigin(t), port(t)
	d := start(t, fmt.Sprintf("workers 2\nauth none\ninternal 127.0.0.1\ntcppm %d 127.0.0.1 %d\n", ppm, echo))
	l := newLoad(ppm, 4)
	time.Sleep(200 * time.Millisecond)
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	if !d.waitExit(patience) {
		t.Error("the daemon does not end")
	}
	err := l.stop()
	t.Logf("%d served, %d refused, %d failed", l.served.Load(), l.refused.Load(), l.failed.Load())
	// A handshake that completes while its socket is being closed is reset by
	// the kernel; each client can meet that once for each socket.
	if l.failed.Load() > 2 {
		t.Errorf("%d connections failed: %v", l.failed.Load(), err)
	}
}

// TestRemoveUnderLoad removes a service under load, with the same expectation.
func TestRemoveUnderLoad(t *testing.T) {
	t.Parallel()
	echo, ppm, other := echoOrigin(t), port(t), port(t)
	base := fmt.Sprintf("workers 2\nauth none\ninternal 127.0.0.1\nsocks -p%d\n", other)
	full := base + fmt.Sprintf("tcppm %d 127.0.0.1 %d\n", ppm, echo)
	d := start(t, full)
	l := newLoad(ppm, 4)
	const rounds = 5
	for range rounds {
		for _, text := range []string{base, full} {
			d.write(text)
			if _, stderr, code := d.ctl("reload"); code != 0 {
				t.Errorf("reload: %s", stderr)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	err := l.stop()
	t.Logf("%d served, %d refused, %d failed", l.served.Load(), l.refused.Load(), l.failed.Load())
	if l.failed.Load() > 2*rounds {
		t.Errorf("%d connections failed: %v", l.failed.Load(), err)
	}
}

// TestHungWorker stops a worker: a reload ends it instead of waiting for ever,
// and its successor begins with the new configuration.
func TestHungWorker(t *testing.T) {
	t.Parallel()
	echo, ppm, added := echoOrigin(t), port(t), port(t)
	base := fmt.Sprintf("workers 2\nauth none\ninternal 127.0.0.1\ntcppm %d 127.0.0.1 %d\n", ppm, echo)
	d := start(t, base)
	d.dumped = true
	pid := d.worker(0).PID
	freeze(t, pid)
	d.write(base + fmt.Sprintf("tcppm %d 127.0.0.1 %d\n", added, echo))
	if _, stderr, code := d.ctl("reload"); code != 0 {
		t.Errorf("a reload with a hung worker ends with %d: %s", code, stderr)
	}
	d.awaitWorker(0, pid)
	for range 10 {
		mustPing(t, dial(t, ppm))
		mustPing(t, dial(t, added))
	}
	d.fds = d.countFDs()
}
