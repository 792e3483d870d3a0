// Package origin is the server behind the proxies: an HTTP/1.1 origin whose
// answer to /SIZE is SIZE bytes of the test pattern. It takes request bodies
// of any length, so endless uploads and downloads are ordinary requests.
//
// It runs one event loop on one thread, and copies no body: small answers are
// made once, large ones are sent by sendfile(2), uploads are dropped in the
// kernel.
package origin

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"

	"3proxyd/bench/sys"
)

const (
	readSize   = 64 << 10 // the shared read buffer
	smallBody  = 64 << 10 // bodies up to this size are sent with their head
	maxCached  = 2048     // number of answers kept, more than a mix has
	turnBytes  = 4 << 20  // bytes a connection moves before others get a turn
	backlog    = 4096
	controlFD  = 0
	listenData = ^uint64(0)
	ctlData    = ^uint64(0) - 1
)

// Stats are the origin's totals.
type Stats struct {
	Accepted   int64 `json:"accepted"`
	Requests   int64 `json:"requests"`
	BytesIn    int64 `json:"bytes_in"`
	BytesOut   int64 `json:"bytes_out"`
	BadHeads   int64 `json:"bad_heads"`
	Mismatches int64 `json:"mismatches"`
}

// conn is one connection. A connection either reads a request or sends an
// answer, never both.
type conn struct {
	fd       int
	in       []byte // part of a head
	req      request
	postOff  int64
	postLeft int64
	out      []byte // bytes of head (and small body) not yet sent
	bodyOff  int64
	bodyLeft int64
	sending  bool
	hangup   bool // the peer's FIN is waiting behind the data
	drained  bool // a short read emptied the socket; an event ends that
	queued   bool
}

type answerKey struct {
	size  int64
	close bool
}

type server struct {
	ep      int
	listen  int
	verify  bool
	pattern *sys.Pattern
	buf     []byte
	conns   map[int]*conn
	answers map[answerKey][]byte
	again   []*conn // connections whose turn ended with work left
	stats   Stats
}

// Run serves on addr until its standard input ends. It writes "ready" when it
// listens, and its Stats as a line of JSON for every line of input. With
// verify set the bodies of uploads are compared with the pattern.
func Run(addr netip.AddrPort, verify bool) error {
	sys.LockLoop()
	pattern, err := sys.NewPattern()
	if err != nil {
		return err
	}
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("epoll_create: %w", err)
	}
	fd, err := sys.Listen(addr, backlog)
	if err != nil {
		return err
	}
	s := &server{
		ep: ep, listen: fd, verify: verify, pattern: pattern,
		buf:     make([]byte, readSize),
		conns:   make(map[int]*conn),
		answers: make(map[answerKey][]byte),
	}
	if e := sys.EpollAdd(ep, fd, unix.EPOLLIN, listenData); e != 0 {
		return fmt.Errorf("epoll_ctl: %w", e)
	}
	if e := sys.EpollAdd(ep, controlFD, unix.EPOLLIN, ctlData); e != 0 {
		return fmt.Errorf("watch the control pipe: %w", e)
	}
	fmt.Println("ready")
	return s.loop()
}

func (s *server) loop() error {
	evs := make([]unix.EpollEvent, 512)
	var run []*conn
	for {
		timeout := -1
		if len(s.again) > 0 {
			timeout = 0
		}
		n, err := sys.Wait(s.ep, evs, sys.Millis(timeout))
		if err != nil {
			return fmt.Errorf("epoll_wait: %w", err)
		}
		for i := range evs[:n] {
			if end, err := s.event(&evs[i]); end || err != nil {
				return err
			}
		}
		run, s.again = s.again, run[:0]
		for _, c := range run {
			c.queued = false
			s.serve(c)
		}
	}
}

func (s *server) event(ev *unix.EpollEvent) (end bool, err error) {
	switch data := sys.EventData(ev); data {
	case listenData:
		s.accept()
	case ctlData:
		return s.control()
	default:
		c := s.conns[int(data)]
		if c == nil {
			return false, nil
		}
		if ev.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
			c.hangup = true
		}
		c.drained = false
		s.serve(c)
	}
	return false, nil
}

// control answers a line of input with the totals and ends at end of input.
func (s *server) control() (end bool, err error) {
	n, err := unix.Read(controlFD, s.buf)
	if err == unix.EINTR || err == unix.EAGAIN {
		return false, nil
	}
	if err != nil || n == 0 {
		return true, nil
	}
	line, err := json.Marshal(s.stats)
	if err != nil {
		return true, err
	}
	fmt.Println(string(line))
	return false, nil
}

func (s *server) accept() {
	for range 64 {
		fd, e := sys.Accept(s.listen)
		if e != 0 {
			return
		}
		s.stats.Accepted++
		if e := sys.EpollAdd(s.ep, fd, unix.EPOLLIN|unix.EPOLLOUT|unix.EPOLLRDHUP|unix.EPOLLET, uint64(fd)); e != 0 {
			sys.Close(fd)
			continue
		}
		// The first event comes at once, since the socket can be written to.
		s.conns[fd] = &conn{fd: fd}
	}
}

func (s *server) drop(c *conn) {
	delete(s.conns, c.fd)
	sys.Close(c.fd)
	c.fd = -1
}

// serve moves a connection on until it would block or its turn ends.
func (s *server) serve(c *conn) {
	if c.fd < 0 {
		return
	}
	for budget := turnBytes; budget > 0; {
		n, e := s.step(c, budget)
		if c.fd < 0 || e == unix.EAGAIN {
			return
		}
		if e != 0 {
			s.drop(c)
			return
		}
		budget -= max(n, 1)
	}
	if !c.queued {
		c.queued = true
		s.again = append(s.again, c)
	}
}

// step makes one system call for c. EAGAIN means that c has to wait.
func (s *server) step(c *conn, budget int) (int, unix.Errno) {
	if c.sending {
		return s.send(c, budget)
	}
	if c.drained && !c.hangup {
		return 0, unix.EAGAIN
	}
	return s.receive(c, budget)
}

// send sends what is left of the answer. EAGAIN means that the socket is full.
func (s *server) send(c *conn, budget int) (int, unix.Errno) {
	if len(c.out) > 0 {
		flags := 0
		if c.bodyLeft > 0 {
			flags = unix.MSG_MORE
		}
		n, e := sys.Send(c.fd, c.out, flags)
		s.stats.BytesOut += int64(n)
		c.out = c.out[n:]
		return n, e
	}
	if c.bodyLeft > 0 {
		n, e := s.pattern.Send(c.fd, c.bodyOff, c.bodyLeft, budget)
		s.stats.BytesOut += int64(n)
		c.bodyOff, c.bodyLeft = c.bodyOff+int64(n), c.bodyLeft-int64(n)
		return n, e
	}
	c.sending = false
	if c.req.close {
		s.drop(c)
	}
	return 0, 0
}

// receive reads a part of a request. EAGAIN means that nothing more is there.
func (s *server) receive(c *conn, budget int) (int, unix.Errno) {
	if c.postLeft > 0 && !s.verify {
		return s.discard(c, budget)
	}
	n, e := sys.Recv(c.fd, s.buf)
	if e != 0 {
		return 0, e
	}
	if n == 0 {
		return 0, unix.EPIPE
	}
	s.stats.BytesIn += int64(n)
	if err := s.take(c, s.buf[:n]); err != nil {
		s.stats.BadHeads++
		return n, unix.EBADMSG
	}
	c.drained = n < len(s.buf)
	return n, 0
}

func (s *server) discard(c *conn, budget int) (int, unix.Errno) {
	want := int(min(c.postLeft, int64(budget)))
	n, e := sys.Discard(c.fd, want)
	if e != 0 {
		return 0, e
	}
	if n == 0 {
		return 0, unix.EPIPE
	}
	s.stats.BytesIn += int64(n)
	c.postLeft -= int64(n)
	c.drained = n < want
	if c.postLeft == 0 {
		s.answer(c)
	}
	return n, 0
}

// take consumes received bytes: the rest of a body or a head and what follows
// it. Bytes after a whole request are an error, since no client pipelines.
func (s *server) take(c *conn, p []byte) error {
	if c.postLeft > 0 {
		return s.takeBody(c, p)
	}
	head, rest, ok := splitHead(c, p)
	if !ok {
		if len(c.in) > maxHead {
			return errRequest
		}
		return nil
	}
	req, err := parseHead(head)
	if err != nil {
		return err
	}
	c.in = nil
	c.req, c.postOff, c.postLeft = req, 0, req.post
	s.stats.Requests++
	if c.postLeft > 0 && len(rest) > 0 {
		return s.takeBody(c, rest)
	}
	if len(rest) > 0 {
		return errRequest
	}
	if c.postLeft == 0 {
		s.answer(c)
	}
	return nil
}

func (s *server) takeBody(c *conn, p []byte) error {
	if int64(len(p)) > c.postLeft {
		return errRequest
	}
	if s.verify && !s.pattern.Matches(p, c.postOff) {
		s.stats.Mismatches++
	}
	c.postOff += int64(len(p))
	c.postLeft -= int64(len(p))
	if c.postLeft == 0 {
		s.answer(c)
	}
	return nil
}

// answer starts the answer to the connection's request.
func (s *server) answer(c *conn) {
	c.sending = true
	c.out = s.head(answerKey{c.req.size, c.req.close})
	c.bodyOff, c.bodyLeft = 0, 0
	if c.req.size > smallBody {
		c.bodyLeft = c.req.size
	}
}

// head returns the answer's head, followed by the body if that is small.
func (s *server) head(k answerKey) []byte {
	if b, ok := s.answers[k]; ok {
		return b
	}
	b := []byte("HTTP/1.1 200 OK\r\nServer: origin\r\nContent-Type: application/octet-stream\r\nContent-Length: ")
	b = strconv.AppendInt(b, k.size, 10)
	if k.close {
		b = append(b, "\r\nConnection: close"...)
	}
	b = append(b, "\r\n\r\n"...)
	if k.size <= smallBody {
		b = append(b, s.pattern.Data[:k.size]...)
	}
	if len(s.answers) < maxCached {
		s.answers[k] = b
	}
	return b
}
