package http1

import "testing"

const (
	browserRequest = "GET http://www.example.com/some/path/page.html?query=value&other=1 HTTP/1.1\r\n" +
		"Host: www.example.com\r\n" +
		"Proxy-Connection: keep-alive\r\n" +
		"Proxy-Authorization: Basic dXNlcjpwYXNzd29yZA==\r\n" +
		"User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n" +
		"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n" +
		"Accept-Language: en-US,en;q=0.5\r\n" +
		"Accept-Encoding: gzip, deflate\r\n" +
		"Cookie: session=0123456789abcdef0123456789abcdef; theme=dark; consent=yes\r\n" +
		"Upgrade-Insecure-Requests: 1\r\n" +
		"Priority: u=0, i\r\n\r\n"
	curlRequest  = "GET http://127.0.0.1:8080/1k HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\nProxy-Connection: Keep-Alive\r\n\r\n"
	nginxAnswer  = "HTTP/1.1 200 OK\r\nServer: nginx/1.24.0\r\nDate: Thu, 01 Oct 2026 10:00:00 GMT\r\nContent-Type: application/octet-stream\r\nContent-Length: 1024\r\nLast-Modified: Thu, 01 Oct 2026 09:00:00 GMT\r\nConnection: keep-alive\r\nETag: \"66fbc0a0-400\"\r\nAccept-Ranges: bytes\r\n\r\n"
	benchedChunk = "400\r\n"
)

func TestNoAllocation(t *testing.T) {
	var (
		req     Request
		resp    Response
		scratch [MaxCredentials]byte
		dst     = make([]byte, 0, 4096)
		spelled = make([]byte, 0, 64)
		in, out = []byte(browserRequest), []byte(nginxAnswer)
		bad     = []byte("GET /a HTTP/1.1\r\n\r\n")
		body    = []byte("5;x\r\nhello\r\n0\r\nA: b\r\n\r\n")
	)
	round := func() {
		if n, err := req.Parse(in[:100]); n != 0 || err != nil {
			t.Fatal(n, err)
		}
		if n, err := req.Parse(in); n != len(in) || err != nil {
			t.Fatal(n, err)
		}
		if _, _, ok := ParseBasic(req.ProxyAuth, scratch[:]); !ok || req.HasVia("x") {
			t.Fatal("credentials")
		}
		dst = AppendRequestHead(dst[:0], &req, RequestOptions{Via: "x", Tell: Forwarded, Client: testClient})
		if n, err := resp.Parse(out, false, false); n != len(out) || err != nil {
			t.Fatal(n, err)
		}
		dst = AppendResponseHead(dst[:0], &resp, ResponseOptions{Close: true})
		var c Chunked
		if _, _, done, err := c.Pass(spelled, body); !done || err != nil {
			t.Fatal(done, err)
		}
		if _, err := req.Parse(bad); err == nil {
			t.Fatal("no error")
		}
		dst = AppendEstablished(AppendError(dst[:0], 407, AnswerOptions{Realm: "proxy", Reason: "r", Format: Negotiate(req.Accept)}), 1)
	}
	round()
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func benchmarkRequest(b *testing.B, in []byte) {
	var r Request
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		if n, err := r.Parse(in); n != len(in) || err != nil {
			b.Fatal(n, err)
		}
	}
}

func BenchmarkRequestCurl(b *testing.B)    { benchmarkRequest(b, []byte(curlRequest)) }
func BenchmarkRequestBrowser(b *testing.B) { benchmarkRequest(b, []byte(browserRequest)) }

func BenchmarkAppendRequestHead(b *testing.B) {
	var r Request
	if _, err := r.Parse([]byte(browserRequest)); err != nil {
		b.Fatal(err)
	}
	dst := make([]byte, 0, 4096)
	for b.Loop() {
		dst = AppendRequestHead(dst[:0], &r, RequestOptions{KeepAlive: true})
	}
}

func BenchmarkResponse(b *testing.B) {
	var r Response
	in := []byte(nginxAnswer)
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		if _, err := r.Parse(in, false, false); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendResponseHead(b *testing.B) {
	var r Response
	if _, err := r.Parse([]byte(nginxAnswer), false, false); err != nil {
		b.Fatal(err)
	}
	dst := make([]byte, 0, 4096)
	for b.Loop() {
		dst = AppendResponseHead(dst[:0], &r, ResponseOptions{})
	}
}

func BenchmarkChunkedPass(b *testing.B) {
	var in []byte
	for range 16 {
		in = append(append(in, benchedChunk...), make([]byte, 1024)...)
		in = append(in, "\r\n"...)
	}
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		var c Chunked
		if _, _, _, err := c.Pass(nil, in); err != nil {
			b.Fatal(err)
		}
	}
}
