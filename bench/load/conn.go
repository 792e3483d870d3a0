package load

import (
	"bytes"

	"golang.org/x/sys/unix"

	"3proxyd/bench/scenario"
	"3proxyd/bench/sys"
)

// state is what a connection waits for.
type state uint8

const (
	stIdle       state = iota // a request to send, with or without a socket
	stConnect                 // the TCP connection
	stTunnel                  // the answer to CONNECT
	stSocksHello              // the SOCKS server's choice of method
	stSocksReply              // the SOCKS server's reply
	stHead                    // the answer's head
	stBody                    // the rest of the answer's body
	stUpload                  // the socket to take more of a stream
	stEOF                     // the end of the connection after the answer
)

// conn is a connection, or the place for one.
type conn struct {
	index   int
	fd      int
	gen     uint32
	state   state
	isOpen  bool // handshakes are done
	want    bool // a request is to be made or under way
	hangup  bool // the peer's FIN is waiting behind the data
	drained bool // a short read emptied the socket; an event ends that
	queued  bool
	last    bool // the connection ends after this answer
	reused  bool // the connection has carried an answer before
	in      []byte
	out     []byte
	off     int64 // bytes of the body moved
	left    int64 // bytes of the body to come or to send
	length  int64 // bytes of the answer's body, as asked for
	begun   int64
	active  int64
	retryAt int64
}

// start makes a request on k at the time now that was due at the time due.
func (c *client) start(k *conn, due, now int64) {
	k.begun, k.active, k.want = due, now, true
	c.busy++
	if k.fd < 0 {
		c.open(k)
		return
	}
	c.request(k)
}

// reopen opens a connection that is to wait for its request.
func (c *client) reopen(k *conn) {
	if c.kind == scenario.Close {
		c.available(k, c.clock())
		return
	}
	c.open(k)
}

// open begins a TCP connection to the proxy.
func (c *client) open(k *conn) {
	c.opening++
	k.state, k.active = stConnect, c.clock()
	k.hangup, k.drained, k.last, k.reused = false, false, false, false
	fd, e := sys.Socket()
	if e != 0 {
		c.fail(k, errConnect)
		return
	}
	k.fd = fd
	if e := sys.Connect(fd, c.addr); e != 0 && e != unix.EINPROGRESS {
		c.fail(k, errConnect)
		return
	}
	events := uint32(unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET)
	if e := sys.EpollAdd(c.ep, fd, events, uint64(k.gen)<<32|uint64(uint32(k.index))); e != 0 {
		c.fail(k, errConnect)
	}
}

// connected goes on with the proxy's handshake.
func (c *client) connected(k *conn) {
	switch c.cfg.Scenario.Mode {
	case scenario.Connect:
		k.state, k.out = stTunnel, c.wire.connect
	case scenario.Socks:
		k.state, k.out = stSocksHello, c.wire.hello
	default:
		c.isOpen(k)
	}
}

// isOpen takes note that the handshakes are done.
func (c *client) isOpen(k *conn) {
	k.isOpen = true
	c.opening--
	c.opened++
	if k.want {
		c.request(k)
		return
	}
	c.available(k, c.clock())
}

// request puts the request on its way; what the socket does not take at once
// follows when serve is called.
func (c *client) request(k *conn) {
	k.state = stHead
	k.out, k.length = c.wire.next()
	k.off, k.left = 0, 0
	if c.kind == scenario.Stream && !c.cfg.Scenario.Down {
		k.left = endless
	}
	if _, e := c.flush(k); e != 0 && e != unix.EAGAIN {
		c.broken(k, e)
		return
	}
	if k.state == stUpload {
		c.turn(k)
	}
}

// serve moves a connection on until it would block or its turn ends.
func (c *client) serve(k *conn) {
	gen := k.gen
	for budget := turnBytes; budget > 0; {
		n, e := c.step(k, budget)
		if e == unix.EAGAIN || k.gen != gen {
			return
		}
		if e != 0 {
			c.broken(k, e)
			return
		}
		budget -= max(n, 1)
	}
	c.turn(k)
}

// turn has k served after the others.
func (c *client) turn(k *conn) {
	if !k.queued {
		k.queued = true
		c.again = append(c.again, k)
	}
}

// step makes at most one system call for k. EAGAIN means that k has to wait.
func (c *client) step(k *conn, budget int) (int, unix.Errno) {
	switch {
	case k.fd < 0:
		return 0, unix.EAGAIN
	case k.state == stConnect:
		if e := connectError(k); e != 0 {
			return 0, e
		}
		c.connected(k)
		return 0, 0
	case len(k.out) > 0:
		return c.flush(k)
	case k.state == stUpload:
		return c.upload(k, budget)
	case k.drained && !k.hangup:
		return 0, unix.EAGAIN
	case k.state == stBody && !c.cfg.Verify:
		return c.discard(k, budget)
	}
	return c.receive(k)
}

func connectError(k *conn) unix.Errno {
	if !k.hangup {
		return 0
	}
	return sys.SocketError(k.fd)
}

func (c *client) flush(k *conn) (int, unix.Errno) {
	n, e := sys.Send(k.fd, k.out, 0)
	k.out = k.out[n:]
	if len(k.out) == 0 && k.state == stHead && k.left > 0 {
		k.state = stUpload
	}
	return n, e
}

func (c *client) upload(k *conn, budget int) (int, unix.Errno) {
	n, e := c.pattern.Send(k.fd, k.off, k.left, budget)
	k.off, k.left = k.off+int64(n), k.left-int64(n)
	c.moved(k, n)
	if k.hangup {
		return n, unix.EPIPE
	}
	return n, e
}

// moved counts body bytes.
func (c *client) moved(k *conn, n int) {
	c.rec.bytes += int64(n)
	if n > 0 && (c.kind == scenario.Stream || k.left > 0) {
		k.active = c.clock()
	}
}

func (c *client) discard(k *conn, budget int) (int, unix.Errno) {
	want := int(min(k.left, int64(budget)))
	n, e := sys.Discard(k.fd, want)
	if e != 0 {
		return 0, e
	}
	if n == 0 {
		return 0, unix.EPIPE
	}
	k.drained = n < want
	k.off, k.left = k.off+int64(n), k.left-int64(n)
	c.moved(k, n)
	if k.left == 0 {
		c.complete(k)
	}
	return n, 0
}

func (c *client) receive(k *conn) (int, unix.Errno) {
	n, e := sys.Recv(k.fd, c.buf)
	if e != 0 {
		return 0, e
	}
	if n == 0 {
		c.ended(k)
		return 0, 0
	}
	k.drained = n < len(c.buf)
	if kind := c.take(k, c.buf[:n]); kind != "" {
		c.fail(k, kind)
	}
	return n, 0
}

// ended handles the peer's FIN.
func (c *client) ended(k *conn) {
	switch {
	case k.state == stEOF:
		c.close(k)
		c.done(k, c.clock())
	case k.state == stIdle && c.rests(k):
		c.fail(k, errEOF)
	case k.state == stIdle && c.cfg.Scenario.KeepsOpen():
		// It stays in the queue of idle ones and is opened again when used.
		c.rec.reopened++
		c.close(k)
	case k.stale():
		c.repeat(k)
	default:
		c.fail(k, errEOF)
	}
}

// stale tells whether the proxy may have closed a kept-alive connection before
// it saw the request.
func (k *conn) stale() bool { return k.reused && k.state == stHead && len(k.in) == 0 }

// repeat makes the request once more on a new connection, as every client of
// HTTP does (RFC 9112, section 9.3.1); its time runs on.
func (c *client) repeat(k *conn) {
	c.rec.reopened++
	c.close(k)
	c.open(k)
}

// take consumes received bytes and returns the kind of error, "" for none.
func (c *client) take(k *conn, p []byte) string {
	switch k.state {
	case stBody:
		return c.takeBody(k, p)
	case stIdle, stEOF, stUpload:
		return errLength
	}
	if len(k.in) > 0 {
		k.in = append(k.in, p...)
		p = k.in
	}
	used, kind := c.takeHead(k, p)
	if used == 0 && kind == "" {
		if len(p) > maxHead {
			return errAnswer
		}
		if len(k.in) == 0 {
			k.in = bytes.Clone(p)
		}
		return ""
	}
	k.in = nil
	return kind
}

// takeHead consumes a whole handshake message or head; it returns 0 while that
// is not complete.
func (c *client) takeHead(k *conn, p []byte) (used int, kind string) {
	switch k.state {
	case stSocksHello:
		return c.takeSocksHello(k, p)
	case stSocksReply:
		return c.takeSocksReply(k, p)
	}
	head, rest, ok := bytes.Cut(p, headEnd)
	if !ok {
		return 0, ""
	}
	if k.state == stTunnel {
		return len(p), c.takeTunnel(k, head, rest)
	}
	return len(p), c.takeAnswer(k, head, rest)
}

func (c *client) takeSocksHello(k *conn, p []byte) (int, string) {
	if len(p) < 2 {
		return 0, ""
	}
	if len(p) > 2 || p[0] != 5 || p[1] != 0 {
		return 2, errProxy
	}
	k.state, k.out = stSocksReply, c.wire.socks
	return 2, ""
}

func (c *client) takeSocksReply(k *conn, p []byte) (int, string) {
	const length = 10 // with an IPv4 address
	if len(p) < length {
		return 0, ""
	}
	if len(p) > length || p[0] != 5 || p[1] != 0 || p[3] != 1 {
		return length, errProxy
	}
	c.isOpen(k)
	return length, ""
}

func (c *client) takeTunnel(k *conn, head, rest []byte) string {
	// An answer to CONNECT has no body whatever its fields say (RFC 9110,
	// section 9.3.6).
	if len(head) < 12 || !bytes.HasPrefix(head, []byte("HTTP/1.")) || head[9] != '2' || len(rest) > 0 {
		return errProxy
	}
	c.isOpen(k)
	return ""
}

func (c *client) takeAnswer(k *conn, head, rest []byte) string {
	a, ok := parseAnswer(head)
	switch {
	case !ok:
		return errAnswer
	case a.status != 200:
		return errStatus
	case a.length != k.length:
		return errLength
	}
	k.last = a.close
	k.state, k.left = stBody, a.length
	return c.takeBody(k, rest)
}

func (c *client) takeBody(k *conn, p []byte) string {
	if int64(len(p)) > k.left {
		return errLength
	}
	if c.cfg.Verify && !c.pattern.Matches(p, k.off) {
		return errContent
	}
	k.off, k.left = k.off+int64(len(p)), k.left-int64(len(p))
	c.moved(k, len(p))
	if k.left == 0 {
		c.complete(k)
	}
	return ""
}

// complete records a request whose answer has arrived in full.
func (c *client) complete(k *conn) {
	now := c.clock()
	c.total++
	c.rec.requests++
	c.rec.bytes += c.wire.post
	if c.rec.active {
		c.rec.latency(now - k.begun)
	}
	k.active, k.reused = now, true
	switch {
	case c.kind == scenario.Close:
		k.state = stEOF
	case k.last:
		c.rec.reopened++
		c.close(k)
		c.done(k, now)
	default:
		c.done(k, now)
	}
}

// done ends the request of k and gives it the next one.
func (c *client) done(k *conn, now int64) {
	k.want = false
	c.busy--
	c.available(k, now)
}

// broken ends a connection after a failed system call.
func (c *client) broken(k *conn, e unix.Errno) {
	switch {
	case k.state == stEOF && e == unix.ECONNRESET:
		c.close(k)
		c.done(k, c.clock())
	case k.state == stConnect:
		c.fail(k, errConnect)
	case k.stale():
		c.repeat(k)
	case e == unix.EPIPE:
		c.fail(k, errEOF)
	default:
		c.fail(k, errReset)
	}
}

// close gives the socket back; what comes for it later is stale.
func (c *client) close(k *conn) {
	if k.fd >= 0 {
		sys.Close(k.fd)
	}
	k.fd = -1
	k.gen++
	k.in, k.out = nil, nil
	if k.isOpen {
		k.isOpen = false
		c.opened--
	} else {
		c.opening--
	}
}

// fail counts an error, and tries again after a pause.
func (c *client) fail(k *conn, kind string) {
	c.rec.errors[kind]++
	if k.want {
		k.want = false
		c.busy--
	}
	queued := k.state == stIdle
	c.close(k)
	if queued {
		return
	}
	k.retryAt = c.clock() + retryDelay
	c.retry.push(k)
}
