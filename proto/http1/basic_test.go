package http1

import (
	"encoding/base64"
	"strings"
	"testing"
)

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func TestParseBasic(t *testing.T) {
	cases := []struct {
		in, user, pass string
		ok             bool
	}{
		{"Basic " + b64("user:pass"), "user", "pass", true},
		{"bASIC   " + b64("u:p:q"), "u", "p:q", true},
		{"Basic " + b64("u:"), "u", "", true},
		{"Basic " + b64(":p"), "", "p", true},
		{"Basic " + b64("us\xc3\xa4r:p w"), "us\xc3\xa4r", "p w", true},
		{"Basic " + b64(strings.Repeat("u", 500)+":"+strings.Repeat("p", 500)), strings.Repeat("u", 500), strings.Repeat("p", 500), true},
		{"", "", "", false},
		{"Basic", "", "", false},
		{"Basic ", "", "", false},
		{"Basic\t" + b64("u:p"), "", "", false},
		{"Basic" + b64("u:p"), "", "", false},
		{"Digest " + b64("u:p"), "", "", false},
		{"Digest username=\"", "", "", false},
		{"Bearer x", "", "", false},
		{"Basic " + b64("nocolon"), "", "", false},
		{"Basic " + strings.TrimRight(b64("u:p1"), "="), "", "", false},
		{"Basic dTpwMQ=", "", "", false},
		{"Basic dTpwMR==", "", "", false}, // bits left over
		{"Basic dTpwMQ==x", "", "", false},
		{"Basic dTpw dTpw", "", "", false},
		{"Basic dTpw\r\n", "", "", false},
		{"Basic dT\npw", "", "", false},
		{"Basic dTpw ", "", "", false},
		{"Basic !!!!", "", "", false},
		{"Basic =", "", "", false},
		{"Basic " + b64("u:p\x00"), "", "", false},
		{"Basic " + b64("u\r\n:p"), "", "", false},
		{"Basic " + b64("u\t:p"), "", "", false},
		{"Basic " + b64("u\x7f:p"), "", "", false},
		{"Basic " + b64(strings.Repeat("a", MaxCredentials)+":"), "", "", false},
		{"Basic " + strings.Repeat("A", 64<<10), "", "", false},
		{"Basic " + strings.Repeat("\x01", 16), "", "", false},
	}
	var scratch [MaxCredentials]byte
	for _, c := range cases {
		user, pass, ok := ParseBasic([]byte(c.in), scratch[:])
		if ok != c.ok || string(user) != c.user || string(pass) != c.pass {
			t.Errorf("%.40q: %q, %q, %v", c.in, user, pass, ok)
		}
	}
	if _, _, ok := ParseBasic([]byte("Basic "+b64("user:pass")), scratch[:5]); ok {
		t.Error("more than scratch holds")
	}
}
