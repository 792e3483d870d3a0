package socks

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
)

// run drives a handshake over in, given in pieces of size bytes, choosing
// method after Methods. It returns the state, the last step, the bytes
// consumed and the steps passed.
func run(in []byte, size int, method byte) (h Handshake, step Step, used int, path []Step) {
	avail := 0
	for {
		n, s := h.Next(in[used:avail])
		used += n
		switch s {
		case More:
			if avail == len(in) {
				return h, More, used, path
			}
			avail = min(avail+size, len(in))
			continue
		case Methods:
			h.Select(method)
		}
		path = append(path, s)
		if s == Request || s == Fail {
			return h, s, used, path
		}
	}
}

const (
	noAuth5   = "\x05\x01\x00"
	userPass5 = "\x05\x02\x00\x02"
	longName  = 255
)

func name5(name string) string { return "\x03" + string(rune(len(name))) + name }

var handshakeCases = []struct {
	name   string
	in     string
	method byte
	step   Step
	err    Failure
	cmd    byte
	dest   string // address or host
	port   uint16
	user   string
	pass   string
	rest   string
}{
	{name: "4 connect", in: "\x04\x01\x00\x50\x7f\x00\x00\x01bob\x00REST", step: Request, cmd: Connect, dest: "127.0.0.1", port: 80, user: "bob", rest: "REST"},
	{name: "4 bind, no user, port 0", in: "\x04\x02\x00\x00\x7f\x00\x00\x01\x00", step: Request, cmd: Bind, dest: "127.0.0.1"},
	{name: "4 address 0.0.0.0", in: "\x04\x02\x00\x00\x00\x00\x00\x00\x00x", step: Request, cmd: Bind, dest: "0.0.0.0", rest: "x"},
	{name: "4 port 0", in: "\x04\x01\x00\x00\x7f\x00\x00\x01\x00", step: Fail, err: FailPort},
	{name: "4 udp associate", in: "\x04\x03\x00\x50\x7f\x00\x00\x01\x00", step: Fail, err: FailCommand},
	{name: "4 command 0", in: "\x04\x00", step: Fail, err: FailCommand},
	{name: "4 user 255", in: "\x04\x01\x00\x50\x7f\x00\x00\x01" + strings.Repeat("u", 255) + "\x00", step: Request, cmd: Connect, dest: "127.0.0.1", port: 80, user: strings.Repeat("u", 255)},
	{name: "4 user 256", in: "\x04\x01\x00\x50\x7f\x00\x00\x01" + strings.Repeat("u", 256), step: Fail, err: FailTooLong},
	{name: "4 user without end", in: "\x04\x01\x00\x50\x7f\x00\x00\x01bob", step: More},
	{name: "4a name", in: "\x04\x01\x01\xbb\x00\x00\x00\x01\x00example.com.\x00\x16\x03", step: Request, cmd: Connect, dest: "example.com", port: 443, rest: "\x16\x03"},
	{name: "4a name and user", in: "\x04\x01\x01\xbb\x00\x00\x00\xffu\x00h\x00", step: Request, cmd: Connect, dest: "h", port: 443, user: "u"},
	{name: "4a textual address", in: "\x04\x01\x01\xbb\x00\x00\x00\x01\x00127.0.0.1\x00", step: Request, cmd: Connect, dest: "127.0.0.1", port: 443},
	{name: "4a empty name", in: "\x04\x01\x01\xbb\x00\x00\x00\x01\x00\x00", step: Fail, err: FailHost},
	{name: "4a short address", in: "\x04\x01\x01\xbb\x00\x00\x00\x01\x00127.1\x00", step: Request, cmd: Connect, dest: "127.1", port: 443},
	{name: "4a name 256", in: "\x04\x01\x01\xbb\x00\x00\x00\x01\x00" + strings.Repeat("a", 256), step: Fail, err: FailTooLong},
	{name: "4a name 255", in: "\x04\x01\x01\xbb\x00\x00\x00\x01\x00" + strings.Repeat("a", 255) + "\x00", step: Fail, err: FailHost},
	{name: "4a control character", in: "\x04\x01\x01\xbb\x00\x00\x00\x01\x00a\r\nb\x00", step: Fail, err: FailHost},

	{name: "5 ipv4", in: noAuth5 + "\x05\x01\x00\x01\x0a\x00\x00\x01\x00\x50GET", step: Request, cmd: Connect, dest: "10.0.0.1", port: 80, rest: "GET"},
	{name: "5 ipv6", in: noAuth5 + "\x05\x01\x00\x04" + strings.Repeat("\x00", 15) + "\x01\x00\x50", step: Request, cmd: Connect, dest: "::1", port: 80},
	{name: "5 mapped ipv4", in: noAuth5 + "\x05\x01\x00\x04" + strings.Repeat("\x00", 10) + "\xff\xff\x7f\x00\x00\x01\x00\x50", step: Request, cmd: Connect, dest: "127.0.0.1", port: 80},
	{name: "5 compatible ipv4", in: noAuth5 + "\x05\x01\x00\x04" + strings.Repeat("\x00", 12) + "\x7f\x00\x00\x01\x00\x50", step: Request, cmd: Connect, dest: "127.0.0.1", port: 80},
	{name: "5 ipv4 with dot", in: noAuth5 + "\x05\x01\x00" + name5("127.0.0.1.") + "\x01\xbb", step: Request, cmd: Connect, dest: "127.0.0.1.", port: 443},
	{name: "5 name", in: noAuth5 + "\x05\x01\x00" + name5("Example.com") + "\x01\xbb", step: Request, cmd: Connect, dest: "Example.com", port: 443},
	{name: "5 textual ipv4", in: noAuth5 + "\x05\x01\x00" + name5("127.0.0.1") + "\x01\xbb", step: Request, cmd: Connect, dest: "127.0.0.1", port: 443},
	{name: "5 textual ipv6", in: noAuth5 + "\x05\x01\x00" + name5("::1") + "\x01\xbb", step: Request, cmd: Connect, dest: "::1", port: 443},
	{name: "5 bracketed ipv6", in: noAuth5 + "\x05\x01\x00" + name5("[::1]") + "\x01\xbb", step: Request, cmd: Connect, dest: "::1", port: 443},
	{name: "5 textual 0.0.0.0 associate", in: noAuth5 + "\x05\x03\x00" + name5("0.0.0.0") + "\x00\x00", step: Request, cmd: UDPAssociate, dest: "0.0.0.0"},
	{name: "5 associate with zeros", in: noAuth5 + "\x05\x03\x00\x01\x00\x00\x00\x00\x00\x00", step: Request, cmd: UDPAssociate, dest: "0.0.0.0"},
	{name: "5 associate with the name 0", in: noAuth5 + "\x05\x03\x00" + name5("0") + "\x00\x00", step: Request, cmd: UDPAssociate, dest: "0.0.0.0"},
	{name: "5 connect to the name 0", in: noAuth5 + "\x05\x01\x00" + name5("0") + "\x00\x50", step: Request, cmd: Connect, dest: "0", port: 80},
	{name: "5 bind", in: noAuth5 + "\x05\x02\x00\x01\x0a\x00\x00\x01\x00\x15", step: Request, cmd: Bind, dest: "10.0.0.1", port: 21},
	{name: "5 port 0", in: noAuth5 + "\x05\x01\x00\x01\x0a\x00\x00\x01\x00\x00", step: Fail, err: FailPort},
	{name: "5 name in brackets", in: noAuth5 + "\x05\x01\x00" + name5("[example.com]") + "\x01\xbb", step: Fail, err: FailHost},
	{name: "5 hexadecimal address", in: noAuth5 + "\x05\x01\x00" + name5("0x7f.1") + "\x01\xbb", step: Request, cmd: Connect, dest: "0x7f.1", port: 443},
	{name: "5 number", in: noAuth5 + "\x05\x01\x00" + name5("2130706433") + "\x01\xbb", step: Request, cmd: Connect, dest: "2130706433", port: 443},
	{name: "5 zone", in: noAuth5 + "\x05\x01\x00" + name5("fe80::1%lo") + "\x01\xbb", step: Fail, err: FailHost},
	{name: "5 NUL in name", in: noAuth5 + "\x05\x01\x00" + name5("a\x00.b") + "\x01\xbb", step: Fail, err: FailHost},
	{name: "5 name with port", in: noAuth5 + "\x05\x01\x00" + name5("a:80") + "\x01\xbb", step: Fail, err: FailHost},
	{name: "5 empty name", in: noAuth5 + "\x05\x01\x00\x03\x00\x01\xbb", step: Fail, err: FailHost},
	{name: "5 name 253", in: noAuth5 + "\x05\x01\x00\x03\xfd" + strings.Repeat("a.", 126) + "b\x01\xbb", step: Request, cmd: Connect, dest: strings.Repeat("a.", 126) + "b", port: 443},
	{name: "5 name 255", in: noAuth5 + "\x05\x01\x00\x03\xff" + strings.Repeat("a", longName) + "\x01\xbb", step: Fail, err: FailHost},
	{name: "5 command 0", in: noAuth5 + "\x05\x00\x00\x01\x0a\x00\x00\x01\x00\x50", step: Fail, err: FailCommand},
	{name: "5 command 4", in: noAuth5 + "\x05\x04", step: Fail, err: FailCommand},
	{name: "5 address type 2", in: noAuth5 + "\x05\x01\x00\x02\x0a\x00\x00\x01\x00\x50", step: Fail, err: FailAddressType},
	{name: "5 unknown address type, and no more", in: noAuth5 + "\x05\x01\x00\x02", step: Fail, err: FailAddressType},
	{name: "5 name, and no more", in: noAuth5 + "\x05\x01\x00\x03", step: More},
	{name: "5 request of version 4", in: noAuth5 + "\x04", step: Fail, err: FailVersion},
	{name: "5 short", in: noAuth5 + "\x05\x01\x00\x01\x0a\x00\x00\x01\x00", step: More},

	{name: "5 password", in: userPass5 + "\x01\x03bob\x02pw\x05\x01\x00\x01\x0a\x00\x00\x01\x00\x50", method: UserPassAuth, step: Request, cmd: Connect, dest: "10.0.0.1", port: 80, user: "bob", pass: "pw"},
	{name: "5 both offered, none chosen", in: userPass5 + "\x05\x01\x00\x01\x0a\x00\x00\x01\x00\x50", method: NoAuth, step: Request, cmd: Connect, dest: "10.0.0.1", port: 80},
	{name: "5 empty password", in: userPass5 + "\x01\x03bob\x00\x05\x01\x00\x01\x0a\x00\x00\x01\x00\x50", method: UserPassAuth, step: Request, cmd: Connect, dest: "10.0.0.1", port: 80, user: "bob"},
	{name: "5 empty user", in: userPass5 + "\x01\x00\x00\x05\x01\x00\x01\x0a\x00\x00\x01\x00\x50", method: UserPassAuth, step: Request, cmd: Connect, dest: "10.0.0.1", port: 80},
	{name: "5 longest user and password", in: userPass5 + "\x01\xff" + strings.Repeat("u", 255) + "\xff" + strings.Repeat("p", 255) + "\x05\x01\x00\x01\x0a\x00\x00\x01\x00\x50", method: UserPassAuth, step: Request, cmd: Connect, dest: "10.0.0.1", port: 80, user: strings.Repeat("u", 255), pass: strings.Repeat("p", 255)},
	{name: "5 request instead of password", in: userPass5 + "\x05\x01\x00\x01\x0a\x00\x00\x01\x00\x50", method: UserPassAuth, step: Fail, err: FailAuthVersion},
	{name: "5 password cut", in: userPass5 + "\x01\x03bob\x05pw", method: UserPassAuth, step: More},
	{name: "5 none acceptable", in: userPass5 + "\x01", method: NoAcceptable, step: Fail, err: FailMethod},
	{name: "5 method not offered", in: noAuth5 + "\x01", method: UserPassAuth, step: Fail, err: FailMethod},
	{name: "5 no methods", in: "\x05\x00\x05", method: NoAuth, step: Fail, err: FailMethod},
	{name: "5 255 methods", in: "\x05\xff" + strings.Repeat("\x80", 254) + "\x00\x05\x01\x00\x01\x0a\x00\x00\x01\x00\x50", step: Request, cmd: Connect, dest: "10.0.0.1", port: 80},

	{name: "empty", in: "", step: More},
	{name: "HTTP", in: "GET / HTTP/1.1\r\n", step: Fail, err: FailVersion},
	{name: "TLS", in: "\x16\x03\x01", step: Fail, err: FailVersion},
}

func TestHandshake(t *testing.T) {
	for _, c := range handshakeCases {
		for _, size := range []int{1, 2, 3, 7, 1 << 20} {
			h, step, used, path := run(inBytes(c.in), size, c.method)
			if step != c.step || h.Err != c.err {
				t.Errorf("%s/%d: step %d, %v; want %d, %v", c.name, size, step, h.Err, c.step, c.err)
				continue
			}
			if step != Request {
				continue
			}
			if c.method == UserPassAuth && path[1] != UserPass {
				t.Errorf("%s/%d: path %v", c.name, size, path)
			}
			dest := string(h.Host)
			if h.Addr.IsValid() {
				dest = h.Addr.String()
			}
			if dest != c.dest || h.Port != c.port || h.Command != c.cmd {
				t.Errorf("%s/%d: %d %q:%d", c.name, size, h.Command, dest, h.Port)
			}
			if string(h.User) != c.user || string(h.Pass) != c.pass {
				t.Errorf("%s/%d: user %q password %q", c.name, size, h.User, h.Pass)
			}
			if rest := c.in[used:]; rest != c.rest {
				t.Errorf("%s/%d: left %q", c.name, size, rest)
			}
		}
	}
}

// inBytes turns the table's strings into bytes with no room behind them, so
// that reading past the end panics.
func inBytes(s string) []byte { return append(make([]byte, 0, len(s)), s...) }

func TestAfterEnd(t *testing.T) {
	h, step, _, _ := run([]byte(noAuth5+"\x05\x01\x00\x01\x0a\x00\x00\x01\x00\x50"), 99, NoAuth)
	if step != Request {
		t.Fatal(step)
	}
	if n, step := h.Next([]byte("\x05")); n != 0 || step != Fail || h.Err != FailSequence {
		t.Errorf("after the end: %d, %d, %v", n, step, h.Err)
	}
	var early Handshake
	early.Select(NoAuth)
	if _, step := early.Next([]byte(noAuth5)); step != Fail {
		t.Errorf("Select before Methods: step %d", step)
	}
	var unselected Handshake
	unselected.Next([]byte(noAuth5))
	if _, step := unselected.Next([]byte("\x05\x01")); step != Fail {
		t.Errorf("Next without Select: step %d", step)
	}
}

func TestMaxMessage(t *testing.T) {
	in := "\x04\x01\x01\xbb\x00\x00\x00\x01" + strings.Repeat("u", 255) + "\x00" + strings.Repeat("a", 255)
	if len(in) != MaxMessage-1 {
		t.Fatalf("longest message %d, MaxMessage %d", len(in)+1, MaxMessage)
	}
	var h Handshake
	if _, step := h.Next([]byte(in)); step != More {
		t.Errorf("step %d", step)
	}
	if _, step := h.Next([]byte(in + "a")); step != Fail || h.Err != FailTooLong {
		t.Errorf("step %d, %v", step, h.Err)
	}
}

func TestAppend(t *testing.T) {
	v4 := netip.MustParseAddrPort("192.0.2.1:8080")
	v6 := netip.MustParseAddrPort("[2001:db8::1]:8080")
	mapped := netip.MustParseAddrPort("[::ffff:192.0.2.1]:8080")
	cases := []struct {
		name      string
		got, want []byte
	}{
		{"method", AppendMethod(nil, UserPassAuth), []byte{5, 2}},
		{"none acceptable", AppendMethod(nil, NoAcceptable), []byte{5, 255}},
		{"status good", AppendAuthStatus(nil, true), []byte{1, 0}},
		{"status bad", AppendAuthStatus(nil, false), []byte{1, 1}},
		{"5 ipv4", AppendReply(nil, 5, ReplySucceeded, v4), []byte{5, 0, 0, 1, 192, 0, 2, 1, 31, 144}},
		{"5 mapped", AppendReply(nil, 5, ReplySucceeded, mapped), []byte{5, 0, 0, 1, 192, 0, 2, 1, 31, 144}},
		{"5 ipv6", AppendReply(nil, 5, ReplySucceeded, v6), []byte{5, 0, 0, 4, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 31, 144}},
		{"5 no address", AppendReply(nil, 5, ReplyNotAllowed, netip.AddrPort{}), []byte{5, 2, 0, 1, 0, 0, 0, 0, 0, 0}},
		{"4 granted", AppendReply(nil, 4, ReplySucceeded, v4), []byte{0, 90, 31, 144, 192, 0, 2, 1}},
		{"4 ipv6", AppendReply(nil, 4, ReplySucceeded, v6), []byte{0, 90, 31, 144, 0, 0, 0, 0}},
		{"4 refused", AppendReply(nil, 4, ReplyConnectionRefused, netip.AddrPort{}), []byte{0, 91, 0, 0, 0, 0, 0, 0}},
		{"4 user mismatch", AppendReply(nil, 4, Reply4UserMismatch, netip.AddrPort{}), []byte{0, 93, 0, 0, 0, 0, 0, 0}},
	}
	for _, c := range cases {
		if !bytes.Equal(c.got, c.want) {
			t.Errorf("%s: % x, want % x", c.name, c.got, c.want)
		}
	}
}

func TestFailure(t *testing.T) {
	for f := FailNone; f <= FailFragment+1; f++ {
		if f.Error() == "" {
			t.Errorf("failure %d has no text", f)
		}
		if (f.Reply() == ReplySucceeded) != (f == FailNone) {
			t.Errorf("failure %d: reply %d", f, f.Reply())
		}
	}
}

func TestNoAllocation(t *testing.T) {
	in := []byte(userPass5 + "\x01\x03bob\x02pw\x05\x01\x00" + name5("www.example.com") + "\x01\xbb")
	dst := make([]byte, 0, 64)
	n := testing.AllocsPerRun(100, func() {
		var h Handshake
		used, step := h.Next(in)
		h.Select(UserPassAuth)
		for step != Request && step != Fail {
			var n int
			n, step = h.Next(in[used:])
			used += n
		}
		dst = AppendReply(AppendMethod(dst[:0], UserPassAuth), 5, ReplySucceeded, netip.AddrPort{})
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkConnect5(b *testing.B) {
	in := []byte("\x05\x01\x00" + name5("www.example.com") + "\x01\xbb")
	for b.Loop() {
		h := Handshake{state: stateRequest}
		if _, step := h.Next(in); step != Request {
			b.Fatal(step)
		}
	}
}

// FuzzHandshake checks that the result does not depend on how the input is
// cut, that messages are bounded and that a destination is always valid.
func FuzzHandshake(f *testing.F) {
	for _, c := range handshakeCases {
		f.Add([]byte(c.in), c.method, uint8(1))
	}
	f.Fuzz(func(t *testing.T, in []byte, method byte, size uint8) {
		whole, step, used, _ := run(in, len(in)+1, method)
		cut, cutStep, cutUsed, _ := run(in, int(size)+1, method)
		if step != cutStep || used != cutUsed || whole.Err != cut.Err || whole.Addr != cut.Addr ||
			!bytes.Equal(whole.Host, cut.Host) || whole.Port != cut.Port || whole.Command != cut.Command ||
			!bytes.Equal(whole.User, cut.User) || !bytes.Equal(whole.Pass, cut.Pass) {
			t.Fatalf("whole %+v step %d, cut %+v step %d", whole, step, cut, cutStep)
		}
		switch step {
		case More:
			if len(in)-used >= MaxMessage {
				t.Fatalf("%d bytes and no end", len(in)-used)
			}
		case Fail:
			if whole.Err == FailNone {
				t.Fatal("failure without reason")
			}
		case Request:
			if whole.Addr.IsValid() == (whole.Host != nil) || whole.Addr.Is4In6() {
				t.Fatalf("destination %v, %q", whole.Addr, whole.Host)
			}
			if whole.Command < Connect || whole.Command > UDPAssociate {
				t.Fatalf("command %d", whole.Command)
			}
		}
	})
}
