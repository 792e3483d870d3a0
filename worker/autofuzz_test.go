package worker

import (
	"bytes"
	"fmt"
	"testing"
)

// FuzzAuto sends bytes to an auto service behind a PROXY protocol header, whose
// targets send everything back. Whatever the bytes are, the connection ends
// once its client has finished; what a TLS server got was what the client sent.
func FuzzAuto(f *testing.F) {
	_, port := serve(f, echo)
	p := startProxy(f, fmt.Sprintf("internal 127.0.0.1\nnserver 127.0.0.1:1\nnsrecord www.example.com 127.0.0.1\n"+
		"auth iponly\nallow * * 127.0.0.1 %[1]s HTTP,HTTPS,CONNECT\nauto -H -pPORT -P%[1]s -Hout1\n", port))
	target := fmt.Sprintf("127.0.0.1:%s", port)
	requests := []string{
		readHello(f, "openssl"), readHello(f, "curl"), readHello(f, "openssl-noname"), longHello("www.example.com", 100, 9),
		"GET http://" + target + "/ HTTP/1.1\r\nHost: x\r\n\r\n", "CONNECT " + target + " HTTP/1.1\r\nHost: x\r\n\r\nearly",
		"\x05\x01\x00" + request5(1, "127.0.0.1", portOf(f, target)) + "early", request4(1, "www.example.com", portOf(f, target), "me"),
		"\x00", "",
	}
	sources := headers("192.0.2.1:1234", "198.51.100.7:443")
	for i, r := range requests {
		f.Add([]byte(sources[[]string{"v1", "v2"}[i%2]] + r))
	}
	f.Add([]byte("PROXY UNKNOWN\r\n" + requests[0]))
	f.Fuzz(func(t *testing.T, in []byte) {
		answer := answerTo(t, p.addrs[0], in)
		if header, rest, ok := bytes.Cut(answer, []byte("\r\n")); ok && bytes.HasPrefix(header, []byte("PROXY ")) && !bytes.HasSuffix(in, rest) {
			t.Fatalf("%q: %q came back", in, answer)
		}
	})
}
