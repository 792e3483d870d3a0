package origin

import "testing"

func TestParseHead(t *testing.T) {
	tests := []struct {
		head string
		want request
		bad  bool
	}{
		{head: "GET /1024 HTTP/1.1\r\nHost: o", want: request{size: 1024}},
		{head: "GET /0 HTTP/1.1", want: request{}},
		{head: "GET http://10.0.2.2:8000/7 HTTP/1.1\r\nConnection: close", want: request{size: 7, close: true}},
		{head: "GET /7 HTTP/1.0\r\nHost: o", want: request{size: 7, close: true}},
		{head: "GET /7 HTTP/1.0\r\nconnection: Keep-Alive", want: request{size: 7}},
		{head: "POST /7 HTTP/1.1\r\nContent-Length:  9", want: request{size: 7, post: 9}},
		{head: "POST /7 HTTP/1.1\r\nContent-Length: -9", bad: true},
		{head: "POST /7 HTTP/1.1\r\nTransfer-Encoding: chunked", bad: true},
		{head: "GET /x HTTP/1.1", bad: true},
		{head: "GET /-1 HTTP/1.1", bad: true},
		{head: "GET /1", bad: true},
		{head: "GET /1 HTTP/2", bad: true},
		{head: "GET /1 HTTP/1.1\r\nno colon", bad: true},
		{head: "", bad: true},
	}
	for _, tt := range tests {
		got, err := parseHead([]byte(tt.head))
		if (err != nil) != tt.bad || (!tt.bad && got != tt.want) {
			t.Errorf("parseHead(%q) = %+v, %v", tt.head, got, err)
		}
	}
}

func TestSplitHead(t *testing.T) {
	whole := "GET /1 HTTP/1.1\r\nHost: o\r\n\r\nbody"
	for cut := range len(whole) - 4 {
		c := &conn{}
		if _, _, ok := splitHead(c, []byte(whole[:cut])); ok {
			t.Fatalf("cut at %d: head is complete already", cut)
		}
		head, rest, ok := splitHead(c, []byte(whole[cut:]))
		if !ok || string(head) != "GET /1 HTTP/1.1\r\nHost: o" || string(rest) != "body" {
			t.Errorf("cut at %d: %q, %q, %v", cut, head, rest, ok)
		}
	}
}

func FuzzParseHead(f *testing.F) {
	f.Add([]byte("GET /1024 HTTP/1.1\r\nHost: o"))
	f.Add([]byte("POST http://o/1 HTTP/1.0\r\nContent-Length: 5\r\nConnection: close"))
	f.Fuzz(func(t *testing.T, head []byte) {
		r, err := parseHead(head)
		if err == nil && (r.size < 0 || r.post < 0) {
			t.Errorf("parseHead(%q) = %+v", head, r)
		}
	})
}
