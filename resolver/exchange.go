package resolver

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/miekg/dns"

	"3proxyd/proto/dnsmsg"
)

const (
	// udpSize is the answer size offered by EDNS: what passes without
	// fragments (DNS flag day 2020). The buffer has room for servers that
	// send more all the same.
	udpSize   = 1232
	udpBuffer = 4096
	// maxStray is the number of datagrams that are not the answer after which
	// UDP is given up for TCP: somebody is guessing.
	maxStray = 64
)

// resendAfter is when a question is sent again over UDP; the last wait lasts
// until the deadline.
var resendAfter = []time.Duration{time.Second, 2 * time.Second}

var (
	errStray   = errors.New("too many answers to questions not asked")
	errAnswer  = errors.New("answer to another question")
	errNoReply = errors.New("no answer in time")
	errShort   = errors.New("records are missing in an answer")
)

// asking is what a server is asked for.
type asking struct {
	name  string // with its final dot
	qtype uint16
	flags dnsmsg.Flags
}

// question is one question as it goes over the wire.
type question struct {
	asking
	id   uint16
	wire []byte
}

// newQuestion builds a question with a random id. The other thing that makes
// answers hard to guess, a random source port, comes from a socket of its own.
func newQuestion(a asking, edns bool) (*question, error) {
	var id [2]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, err
	}
	q := &question{asking: a, id: binary.BigEndian.Uint16(id[:])}
	m := new(dns.Msg)
	m.Id = q.id
	m.RecursionDesired = true
	m.AuthenticatedData = a.flags&dnsmsg.Authenticated != 0
	m.CheckingDisabled = a.flags&dnsmsg.CheckingDisabled != 0
	m.Question = []dns.Question{{Name: a.name, Qtype: a.qtype, Qclass: dns.ClassINET}}
	if edns {
		m.SetEdns0(udpSize, a.flags&dnsmsg.DNSSEC != 0)
	}
	wire, err := m.Pack()
	if err != nil {
		return nil, fmt.Errorf("question for %q: %w", a.name, err)
	}
	q.wire = wire
	return q, nil
}

// read parses a message and checks that it answers the question. An answer
// that was cut off comes with truncated set; what is in it is not used.
func (q *question) read(wire []byte) (msg *dns.Msg, truncated bool, err error) {
	if len(wire) < 12 || binary.BigEndian.Uint16(wire) != q.id {
		return nil, false, errAnswer
	}
	m := new(dns.Msg)
	unpackErr := m.Unpack(wire)
	if !m.Response || m.Opcode != dns.OpcodeQuery || !q.asked(m) {
		return nil, false, errAnswer
	}
	if m.Truncated {
		return nil, true, nil
	}
	if unpackErr == nil && !isWhole(wire, m) {
		unpackErr = errShort
	}
	return m, false, unpackErr
}

// isWhole reports whether m has as many records as the header of its message
// says: Unpack takes an end between two records for that of the message.
func isWhole(wire []byte, m *dns.Msg) bool {
	for i, n := range []int{len(m.Answer), len(m.Ns), len(m.Extra)} {
		if int(binary.BigEndian.Uint16(wire[6+2*i:])) != n {
			return false
		}
	}
	return true
}

// asked compares the question section. Only a refusal may lack it: some servers
// send FORMERR without.
func (q *question) asked(m *dns.Msg) bool {
	if len(m.Question) == 0 {
		return m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError && len(m.Answer) == 0
	}
	asked := m.Question[0]
	return len(m.Question) == 1 && asked.Qtype == q.qtype && asked.Qclass == dns.ClassINET &&
		strings.EqualFold(asked.Name, q.name)
}

// exchange sends a question and waits for the answer, over UDP first unless the
// server is to be asked over TCP. ctx has a deadline.
func (s *server) exchange(ctx context.Context, a asking) (*dns.Msg, error) {
	q, err := newQuestion(a, !s.plain.Load())
	if err != nil {
		return nil, err
	}
	if s.tcp {
		return s.overTCP(ctx, q)
	}
	msg, truncated, err := s.overUDP(ctx, q)
	if truncated || errors.Is(err, errStray) {
		return s.overTCP(ctx, q)
	}
	return msg, err
}

// dial connects to the server; with UDP this makes the kernel drop datagrams
// from anywhere else. The connection ends with ctx.
func (s *server) dial(ctx context.Context, network string) (conn net.Conn, done func(), err error) {
	var d net.Dialer
	conn, err = d.DialContext(ctx, network, s.addr.String())
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	return conn, func() {
		stop()
		conn.Close()
	}, nil
}

func (s *server) overUDP(ctx context.Context, q *question) (msg *dns.Msg, truncated bool, err error) {
	conn, done, err := s.dial(ctx, "udp")
	if err != nil {
		return nil, false, err
	}
	defer done()
	buf := make([]byte, udpBuffer)
	stray := 0
	for try := 0; ; try++ {
		if _, err := conn.Write(q.wire); err != nil {
			return nil, false, err
		}
		conn.SetReadDeadline(waitUntil(ctx, try))
		if ctx.Err() != nil {
			return nil, false, ctx.Err()
		}
		msg, truncated, err = q.receive(conn, buf, &stray)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return msg, truncated, err
		}
		if expired(ctx) {
			return nil, false, fmt.Errorf("%w: %w", errNoReply, err)
		}
	}
}

// waitUntil is when the answer to the given try is due.
func waitUntil(ctx context.Context, try int) time.Time {
	deadline, _ := ctx.Deadline()
	if try >= len(resendAfter) {
		return deadline
	}
	if due := time.Now().Add(resendAfter[try]); due.Before(deadline) {
		return due
	}
	return deadline
}

func expired(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// receive waits for the answer and passes over everything else.
func (q *question) receive(conn net.Conn, buf []byte, stray *int) (msg *dns.Msg, truncated bool, err error) {
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return nil, false, err
		}
		msg, truncated, err := q.read(buf[:n])
		if !errors.Is(err, errAnswer) {
			return msg, truncated, err
		}
		if *stray++; *stray > maxStray {
			return nil, false, errStray
		}
	}
}

func (s *server) overTCP(ctx context.Context, q *question) (*dns.Msg, error) {
	conn, done, err := s.dial(ctx, "tcp")
	if err != nil {
		return nil, err
	}
	defer done()
	if deadline, ok := ctx.Deadline(); ok {
		conn.SetDeadline(deadline)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	out := binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(q.wire)), uint16(len(q.wire)))
	if _, err := conn.Write(append(out, q.wire...)); err != nil {
		return nil, err
	}
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, err
	}
	wire := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(conn, wire); err != nil {
		return nil, err
	}
	msg, truncated, err := q.read(wire)
	if truncated {
		return nil, errors.New("truncated answer over TCP")
	}
	return msg, err
}
