package worker

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
)

// FuzzProxy sends bytes through a whole proxy to an origin that understands one
// spelling only. Whatever the bytes are, what reaches the origin is in that
// spelling, and each request has the method and the body that net/http reads
// in the same bytes. ORIGIN in the input stands for the origin's address.
func FuzzProxy(f *testing.F) {
	for i, c := range rawCases("ORIGIN") {
		if len(c.in) < 1000 && i%4 == 0 {
			f.Add([]byte(c.in))
		}
	}
	o := startStrictOrigin(f)
	p := startProxy(f, "internal 127.0.0.1\nnserver 127.0.0.1:1\nauth iponly\nallow * * 127.0.0.1 "+o.addr[strings.LastIndexByte(o.addr, ':')+1:]+" HTTP\nproxy -pPORT\n")
	f.Fuzz(func(t *testing.T, in []byte) {
		in = bytes.ReplaceAll(in, []byte("ORIGIN"), []byte(o.addr))
		answerTo(t, p.addrs[0], in)
		got, err := o.take()
		if err != nil {
			t.Fatalf("%q: the origin got: %v", in, err)
		}
		compareWithNetHTTP(t, in, got, o.addr)
	})
}

// compareWithNetHTTP checks that the requests the origin got are among those
// net/http reads, in order, as far as it reads.
func compareWithNetHTTP(t *testing.T, in []byte, got []seen, addr string) {
	r := bufio.NewReader(bytes.NewReader(in))
	for len(got) > 0 {
		want, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		body, err := io.ReadAll(want.Body)
		if err != nil {
			return
		}
		if want.URL.Host != addr {
			continue
		}
		if got[0].method != want.Method || got[0].body != string(body) {
			t.Fatalf("%q: the origin got %v, net/http reads %s with %q", in, got[0], want.Method, body)
		}
		got = got[1:]
	}
}
