package http1

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"testing"
)

// FuzzRequest checks that a refusal or acceptance does not depend on how the
// input is cut, and that net/http reads an accepted request, written anew,
// like this package did.
func FuzzRequest(f *testing.F) {
	for _, c := range refused {
		if len(c.in) < 1000 {
			f.Add([]byte(c.in))
		}
	}
	for _, c := range accepted {
		f.Add([]byte(c.in))
	}
	f.Add([]byte(browserRequest))
	f.Fuzz(func(t *testing.T, in []byte) {
		var r, cut Request
		n, err := r.Parse(in)
		checkCut(t, in, n, err, cut.Parse)
		if n == 0 {
			return
		}
		if describe(&r) != describe(&cut) {
			t.Fatalf("whole %s, cut %s", describe(&r), describe(&cut))
		}
		checkFraming(t, &r, bytes.TrimLeft(in[:n], "\r\n"))
		if r.Form != AuthorityForm && (r.Host != nil || r.Addr.IsValid()) {
			checkRequestHead(t, &r)
		}
	})
}

// checkCut parses in byte by byte and compares the outcome; of several reasons
// to refuse it the first to arrive is given.
func checkCut(t *testing.T, in []byte, n int, err error, parse func([]byte) (int, error)) {
	t.Helper()
	if err != nil && (n != 0 || findPage(statusOf(err)).status != statusOf(err)) {
		t.Fatalf("%d, %v, status %d", n, err, statusOf(err))
	}
	if len(in) > 2000 {
		parse(in)
		return
	}
	var cutN int
	var cutErr error
	for i := 0; i <= len(in) && cutN == 0 && cutErr == nil; i++ {
		cutN, cutErr = parse(in[:i:i])
	}
	if cutN != n || (cutErr != nil) != (err != nil) {
		t.Fatalf("whole %d, %v; cut %d, %v", n, err, cutN, cutErr)
	}
}

// checkFraming compares with what net/http reads in the original.
func checkFraming(t *testing.T, r *Request, head []byte) {
	got, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(head)))
	if err != nil {
		return
	}
	if chunked := len(got.TransferEncoding) == 1; chunked != r.Chunked || !chunked && got.ContentLength != max(r.ContentLength, 0) {
		t.Fatalf("net/http: chunked %v, length %d in %q", chunked, got.ContentLength, head)
	}
	want := appendAuthority(nil, r)
	if r.Form == AbsoluteForm && !strings.EqualFold(strings.TrimSuffix(got.URL.Hostname(), "."), string(r.Host)) && r.Host != nil {
		t.Fatalf("net/http: host %q, want %q in %q", got.URL.Host, want, head)
	}
}

func checkRequestHead(t *testing.T, r *Request) {
	if _, err := url.ParseRequestURI(string(bytes.ReplaceAll(r.Path, []byte("?"), []byte("/?")))); err != nil && r.Path[0] != '*' {
		r.Path = rootPath // net/http refuses some paths, such as /%zz
	}
	r.MaxForwards = min(r.MaxForwards, 1)
	head := AppendRequestHead(nil, r, RequestOptions{KeepAlive: r.KeepAlive, Via: "x"})
	rest := []byte("GET /rest HTTP/1.1\r\n")
	got, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(append(head[:len(head):len(head)], rest...))))
	if err != nil {
		t.Fatalf("net/http: %v in %q", err, head)
	}
	if got.Method != string(r.Method) {
		t.Fatalf("method %q in %q", got.Method, head)
	}
	host := appendAuthority(nil, r)
	if got.Host != string(host) {
		t.Fatalf("host %q, want %q in %q", got.Host, host, head)
	}
	chunked := len(got.TransferEncoding) == 1 && got.TransferEncoding[0] == "chunked"
	if chunked != r.Chunked || !chunked && got.ContentLength != max(r.ContentLength, 0) {
		t.Fatalf("framing: chunked %v, length %d in %q", chunked, got.ContentLength, head)
	}
	if got.Close == r.KeepAlive && !r.Upgrade {
		t.Fatalf("close %v in %q", got.Close, head)
	}
	for name := range got.Header {
		if strings.HasPrefix(name, "Proxy-") || name == "Te" || name == "Keep-Alive" || name == "Http2-Settings" {
			t.Fatalf("field %q in %q", name, head)
		}
	}
	var again Request
	if n, err := again.Parse(head); n != len(head) || err != nil {
		t.Fatalf("own parser: %d, %v in %q", n, err, head)
	}
}

// FuzzResponse is FuzzRequest for responses.
func FuzzResponse(f *testing.F) {
	for _, c := range responsesRefused {
		if len(c.in) < 1000 {
			f.Add([]byte(c.in), byte(0))
		}
	}
	for _, c := range responsesAccepted {
		f.Add([]byte(c.in), byte(1))
	}
	f.Add([]byte(nginxAnswer), byte(2))
	f.Fuzz(func(t *testing.T, in []byte, flags byte) {
		head, connect := flags&1 != 0, flags&2 != 0
		var r, cut Response
		n, err := r.Parse(in, head, connect)
		checkCut(t, in, n, err, func(b []byte) (int, error) { return cut.Parse(b, head, connect) })
		if n == 0 {
			return
		}
		if describeResponse(&r) != describeResponse(&cut) {
			t.Fatalf("whole %s, cut %s", describeResponse(&r), describeResponse(&cut))
		}
		checkResponseHead(t, &r, head, connect)
	})
}

func checkResponseHead(t *testing.T, r *Response, head, connect bool) {
	out := AppendResponseHead(nil, r, ResponseOptions{Via: "x"})
	req := &http.Request{Method: "GET"}
	if head {
		req.Method = "HEAD"
	} else if connect {
		req.Method = "CONNECT"
	}
	got, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(out)), req)
	if err != nil {
		t.Fatalf("net/http: %v in %q", err, out)
	}
	if got.StatusCode != r.Status {
		t.Fatalf("status %d in %q", got.StatusCode, out)
	}
	chunked := len(got.TransferEncoding) == 1
	if r.Body == BodyChunked && !chunked || r.Body == BodyLength && got.ContentLength != r.ContentLength {
		t.Fatalf("framing: chunked %v, length %d in %q", chunked, got.ContentLength, out)
	}
	if r.Body == BodyUntilClose && (!got.Close || chunked || got.ContentLength >= 0) {
		t.Fatalf("framing: close %v, chunked %v, length %d in %q", got.Close, chunked, got.ContentLength, out)
	}
}

// FuzzChunked checks that the result does not depend on how the body is cut,
// and that net/http finds the same data in an accepted one.
func FuzzChunked(f *testing.F) {
	for _, c := range goodBodies {
		f.Add([]byte(c.in), uint8(1))
	}
	for _, c := range badBodies {
		if len(c.in) < 1000 {
			f.Add([]byte(c.in), uint8(2))
		}
	}
	f.Fuzz(func(t *testing.T, in []byte, size uint8) {
		whole, data, used, err := dechunk(in, len(in)+1)
		cut, cutData, cutUsed, cutErr := dechunk(in, int(size)+1)
		if err != cutErr || whole.Done() != cut.Done() || err == nil && (used != cutUsed || !bytes.Equal(data, cutData)) {
			t.Fatalf("whole %d %q %v, cut %d %q %v", used, data, err, cutUsed, cutData, cutErr)
		}
		if whole.Left() != cut.Left() {
			t.Fatalf("left %d, %d", whole.Left(), cut.Left())
		}
		for _, size := range []int{int(size) + 1, len(in) + 1} {
			out, n, done, passErr := passAll(in, size)
			if done != whole.Done() || passErr != err || err == nil && n != used {
				t.Fatalf("Pass: %d, %v, %v", n, done, passErr)
			}
			if done {
				checkSpelling(t, out, string(data))
			}
		}
		if !whole.Done() {
			return
		}
		got, readErr := io.ReadAll(httputil.NewChunkedReader(bytes.NewReader(in[:used])))
		if readErr != nil && tooLong(readErr) {
			return
		}
		if !bytes.Equal(got, data) || readErr != nil {
			t.Fatalf("net/http: %q, %v; want %q", got, readErr, data)
		}
	})
}

// tooLong tells the limits that net/http puts on extensions.
func tooLong(err error) bool {
	return strings.Contains(err.Error(), "overhead") || strings.Contains(err.Error(), "line too long")
}

// FuzzBasic checks ParseBasic against net/http.
func FuzzBasic(f *testing.F) {
	for _, s := range []string{"Basic dTpw", "basic  dTpw", "Basic", "Basic =", "Digest x", "Basic dTpwMR=="} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		var scratch [MaxCredentials]byte
		user, pass, ok := ParseBasic([]byte(in), scratch[:])
		if !ok {
			return
		}
		if len(in) > 6 {
			in = in[:6] + strings.TrimLeft(in[6:], " ")
		}
		r := http.Request{Header: http.Header{"Authorization": {in}}}
		wantUser, wantPass, wantOK := r.BasicAuth()
		if !wantOK || wantUser != string(user) || wantPass != string(pass) {
			t.Fatalf("%q, %q; net/http %q, %q, %v", user, pass, wantUser, wantPass, wantOK)
		}
	})
}

// FuzzErrorPage checks that neither the operator's realm nor Accept can break a
// page.
func FuzzErrorPage(f *testing.F) {
	f.Add("proxy", 407, "text/html")
	f.Add("a\r\n\"\\", 407, "application/json;q=0.5, text/plain; q=1.000")
	f.Fuzz(func(t *testing.T, realm string, status int, accept string) {
		page := AppendError(nil, status, AnswerOptions{Realm: realm, Allow: "GET", Format: Negotiate([]byte(accept))})
		resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(page)), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || strconv.Itoa(len(body)) != resp.Header.Get("Content-Length") {
			t.Fatalf("%d bytes, %v", len(body), err)
		}
	})
}
