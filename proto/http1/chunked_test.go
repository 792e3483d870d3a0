package http1

import (
	"bytes"
	"strings"
	"testing"
)

// dechunk runs a body through Next in pieces of size bytes.
func dechunk(in []byte, size int) (c Chunked, data []byte, used int, err error) {
	for used < len(in) && !c.Done() {
		piece := in[used:min(used+size, len(in))]
		for len(piece) > 0 && !c.Done() {
			n, d, done, err := c.Next(piece)
			if err != nil {
				return c, data, used, err
			}
			if done != c.Done() {
				panic("done differs from Done")
			}
			data = append(data, d...)
			piece = piece[n:]
			used += n
		}
	}
	return c, data, used, nil
}

var goodBodies = []struct{ in, data, rest string }{
	{"0\r\n\r\n", "", ""},
	{"5\r\nhello\r\n0\r\n\r\nGET", "hello", "GET"},
	{"5\r\nhello\r\n6\r\n world\r\n000\r\n\r\n", "hello world", ""},
	{"a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n", "01234567890123456789", ""},
	{"0000000000000005\r\nhello\r\n0\r\n\r\n", "hello", ""},
	{"5;a\r\nhello\r\n0;b=\"c d\"; e\r\n\r\n", "hello", ""},
	{"2\r\n\r\n\r\n0\r\n\r\n", "\r\n", ""},
	{"1\r\nx\r\n0\r\nA: b\r\nC:\r\nD: \t\xc3\xa4 \r\n\r\nrest", "x", "rest"},
	{"0\r\nX-Content-Length: 5\r\n" + strings.Repeat("a", 300) + ": b\r\n\r\n", "", ""},
	{"1;" + strings.Repeat("a", MaxChunkExtensions-1) + "\r\nx\r\n0\r\n\r\n", "x", ""},
}

func TestChunkedGood(t *testing.T) {
	for _, c := range goodBodies {
		for _, size := range []int{1, 2, 3, 5, 8, 1 << 20} {
			ch, data, used, err := dechunk([]byte(c.in), size)
			if err != nil || !ch.Done() || string(data) != c.data || c.in[used:] != c.rest {
				t.Errorf("%.40q/%d: done %v, %q, left %q, %v", c.in, size, ch.Done(), data, c.in[used:], err)
			}
		}
		for _, size := range []int{1, 2, 3, 7, 1 << 20} {
			out, n, done, err := passAll([]byte(c.in), size)
			if !done || err != nil || n != len(c.in)-len(c.rest) {
				t.Errorf("%.40q/%d: Pass %d, %v, %v", c.in, size, n, done, err)
			}
			checkSpelling(t, out, c.data)
		}
	}
}

// passAll runs a body through Pass in pieces of size bytes.
func passAll(in []byte, size int) (out []byte, used int, done bool, err error) {
	var c Chunked
	for used < len(in) && !done && err == nil {
		var n int
		var piece []byte
		piece, n, done, err = c.Pass(nil, in[used:min(used+size, len(in))])
		out = append(out, piece...)
		used += n
	}
	return out, used, done, err
}

// checkSpelling checks that a body that was passed on holds data, sizes without
// leading zeros, and no extension.
func checkSpelling(t *testing.T, out []byte, data string) {
	t.Helper()
	var c Chunked
	same, n, done, err := c.Pass(nil, out)
	if n != len(out) || !done || err != nil || c.respell || !bytes.Equal(same, out) {
		t.Errorf("passed on: %.60q: %d, %v, %v", out, n, done, err)
	}
	if _, got, _, err := dechunk(out, len(out)); string(got) != data || err != nil {
		t.Errorf("passed on: %.60q: data %.60q, %v", out, got, err)
	}
}

func TestChunkedSpelling(t *testing.T) {
	for _, c := range []struct{ in, out string }{
		{"0\r\n\r\n", "0\r\n\r\n"},
		{"000\r\n\r\n", "0\r\n\r\n"},
		{"05\r\nhello\r\n0\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n"},
		{"5;a=b;c\r\nhello\r\n0;d\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n"},
		{"2\r\nab\r\n2;x=\"y;z\"\r\ncd\r\n0\r\nA: b\r\n\r\n", "2\r\nab\r\n2\r\ncd\r\n0\r\nA: b\r\n\r\n"},
	} {
		for size := 1; size <= len(c.in); size++ {
			if out, _, _, err := passAll([]byte(c.in), size); string(out) != c.out || err != nil {
				t.Errorf("%q/%d: %q, %v", c.in, size, out, err)
			}
		}
	}
}

var badBodies = []struct {
	in     string
	status int
}{
	{"\r\n", 400},
	{"\n", 400},
	{";a\r\n", 400},
	{"-1\r\n", 400},
	{"+5\r\n", 400},
	{" 5\r\n", 400},
	{"\t5\r\n", 400},
	{"5 \r\n", 400},
	{"5 ;a\r\n", 400},
	{"0x5\r\n", 400},
	{"5x\r\n", 400},
	{"g\r\n", 400},
	{"5_0\r\n", 400},
	{"5\n", 400},
	{"5\rhello", 400},
	{"5\r\r\n", 400},
	{"5;a\n", 400},
	{"5;a\rb\r\n", 400},
	{"5;\x00\r\n", 400},
	{"5;\x7f\r\n", 400},
	{"7fffffffffffffff\r\n", 400},
	{"ffffffffffffffff\r\n", 400},
	{"8000000000000000\r\n", 400},
	{"1000000000000000\r\n", 400},
	{"10000000000000005\r\n", 400},
	{"00000000000000005\r\n", 400},
	{"5\r\nhello0\r\n\r\n", 400},
	{"5\r\nhello\n0\r\n\r\n", 400},
	{"5\r\nhello\r0\r\n\r\n", 400},
	{"5\r\nhello\r\r\n", 400},
	{"5\r\nhello!\r\n", 400},
	{"5\r\nhello\r\n\r\n", 400},
	{"0\n\r\n", 400},
	{"0\r\n\n", 400},
	{"0\r\n\rx", 400},
	{"0\r\n: x\r\n\r\n", 400},
	{"0\r\nabc\r\n\r\n", 400},
	{"0\r\nA : b\r\n\r\n", 400},
	{"0\r\n a: b\r\n\r\n", 400},
	{"0\r\na: b\r\n c\r\n\r\n", 400},
	{"0\r\na: b\n\r\n", 400},
	{"0\r\na: b\rc\r\n\r\n", 400},
	{"0\r\na: b\x00\r\n\r\n", 400},
	{"0\r\nGET / HTTP/1.1\r\n\r\n", 400},
	{"0\r\nContent-Length: 5\r\n\r\n", 400},
	{"0\r\ntransfer-ENCODING: chunked\r\n\r\n", 400},
	{"0\r\nHost: x\r\n\r\n", 400},
	{"0\r\nConnection: close\r\n\r\n", 400},
	{"0\r\nTrailer: x\r\n\r\n", 400},
	{"0\r\nProxy-Authenticate: x\r\n\r\n", 400},
	{"0\r\nProxy-Authorization-x: x\r\n\r\n", 400},
	{"0\r\nproxy-: x\r\n\r\n", 400},
	{"0\r\nTE: x\r\n\r\n", 400},
	{"0\r\nAuthorization: x\r\n\r\n", 400},
	{"0\r\nProxy-Authorization: x\r\n\r\n", 400},
	{"1;" + strings.Repeat("a", MaxChunkExtensions) + "\r\nx\r\n0\r\n\r\n", 400},
	{"1;" + strings.Repeat("a", 1<<20), 400},
	{strings.Repeat("1;aaaaaaa\r\nx\r\n", MaxChunkExtensions/8+1), 400},
	{"0\r\n" + strings.Repeat("a: b\r\n", MaxTrailer/6+1) + "\r\n", 431},
	{"0\r\n" + strings.Repeat("a", 1<<20), 431},
}

func TestChunkedBad(t *testing.T) {
	for _, c := range badBodies {
		for _, size := range []int{1, 3, 1 << 21} {
			ch, _, used, err := dechunk([]byte(c.in), size)
			if statusOf(err) != c.status {
				t.Errorf("%.40q/%d: %v after %d", c.in, size, err, used)
				continue
			}
			if n, data, done, again := ch.Next([]byte("0\r\n\r\n")); n != 0 || data != nil || done || again != err {
				t.Errorf("%.40q/%d: %d, %q, %v, %v after the error", c.in, size, n, data, done, again)
			}
		}
	}
}

// A body is refused at the size of the chunk that makes it too long, in pieces of
// any size, before any of its data.
func TestChunkedLimit(t *testing.T) {
	for _, test := range []struct {
		in   string
		good string // the data before the refusal
		ok   bool
	}{
		{"a\r\n0123456789\r\n0\r\n\r\n", "0123456789", true},
		{"5\r\n01234\r\n5\r\n56789\r\n0\r\nA: b\r\n\r\n", "0123456789", true},
		{"0\r\n\r\n", "", true},
		{"b\r\n0123456789a\r\n0\r\n\r\n", "", false},
		{"5;x\r\n01234\r\n6\r\n567890\r\n", "01234", false},
		{"a\r\n0123456789\r\n1\r\n0\r\n", "0123456789", false},
		{"fffffffffffffff\r\n", "", false},
		{"1\r\n0\r\nfffffffffffffff\r\n", "0", false},
	} {
		for piece := 1; piece <= len(test.in); piece++ {
			c := Chunked{Limit: 10}
			var data []byte
			var err error
			for in := test.in; in != "" && err == nil && !c.Done(); {
				var n int
				var d []byte
				n, d, _, err = c.Next([]byte(in[:min(piece, len(in))]))
				data, in = append(data, d...), in[n:]
			}
			if string(data) != test.good || (err == nil) != test.ok || err != nil && err != ErrBodyLong {
				t.Errorf("%q by %d: %q, %v", test.in, piece, data, err)
			}
		}
	}
}

func TestChunkedSkip(t *testing.T) {
	var c Chunked
	head := []byte("3fffffff\r\nab")
	n, data, _, err := c.Next(head)
	if n != len(head) || string(data) != "ab" || err != nil || c.Left() != 0x3fffffff-2 {
		t.Fatalf("%d, %q, %v, left %d", n, data, err, c.Left())
	}
	c.Skip(1)
	c.Skip(c.Left())
	c.Skip(0)
	if c.Left() != 0 {
		t.Fatalf("left %d", c.Left())
	}
	if _, n, done, err := c.Pass(nil, []byte("\r\n0\r\n\r\n")); n != 7 || !done || err != nil {
		t.Errorf("%d, %v, %v", n, done, err)
	}
	if _, n, done, err := c.Pass(nil, []byte("x")); n != 0 || !done || err != nil {
		t.Errorf("after the end: %d, %v, %v", n, done, err)
	}
	for _, wrong := range []int64{-1, 3} {
		var c Chunked
		if _, err := passString(&c, "2\r\n"); err != nil {
			t.Fatal(err)
		}
		c.Skip(wrong)
		if _, err := passString(&c, "ab\r\n"); err == nil {
			t.Errorf("Skip(%d) went unnoticed", wrong)
		}
	}
}

func passString(c *Chunked, s string) (int, error) {
	_, n, _, err := c.Pass(nil, []byte(s))
	return n, err
}

func TestChunkedPassError(t *testing.T) {
	for _, in := range []string{"2\r\nab\r\nx", "2;a\r\nab\r\nx", "2\r\nab\r\n00x"} {
		for size := 1; size <= len(in); size++ {
			out, _, done, err := passAll([]byte(in), size)
			if !strings.HasPrefix("2\r\nab\r\n", string(out)) || len(out) < len("2\r\nab") || done || err == nil {
				t.Errorf("%q/%d: %q, %v, %v", in, size, out, done, err)
			}
		}
	}
}
