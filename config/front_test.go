package config

import (
	"fmt"
	"strings"
	"testing"
)

// TestFront looks at what the options of tlspr, auto and the PROXY protocol
// come to.
func TestFront(t *testing.T) {
	cases := []struct{ line, want string }{
		{"tlspr", "tlspr@127.0.0.1:1443 443 0 - 0"},
		{"tlspr -p1 -P8443 -c2 -Hout2", "tlspr@127.0.0.1:1 8443 2 - 2"},
		{"auto", "auto@127.0.0.1:8080 443 0 - 0"},
		{"auto -c1 -P1 -H -s0 -C -Hout1", "auto@127.0.0.1:8080 1 1 [] 1"},
		{"proxy -H", "proxy@127.0.0.1:3128 0 0 [] 0"},
		{"socks -H10.0.0.2,10.0.0.1,::1", "socks@127.0.0.1:1080 0 0 [10.0.0.1-10.0.0.2 ::1-::1] 0"},
		{"tcppm -H10.0.0.0/8,::ffff:192.0.2.1 1 10.1.1.1 2", "tcppm@127.0.0.1:1 0 0 [10.0.0.0-10.255.255.255 192.0.2.1-192.0.2.1] 0"},
	}
	for _, c := range cases {
		cfg, diags := LoadBytes("t.cfg", []byte("internal 127.0.0.1\n"+c.line+"\n"))
		if cfg == nil {
			t.Errorf("%s: %v", c.line, diags)
			continue
		}
		s := cfg.Services[0]
		from := "-"
		if s.ProxyHeader != nil {
			var list []string
			for _, r := range s.ProxyHeader.From {
				list = append(list, r.From.String()+"-"+r.To.String())
			}
			from = fmt.Sprint(list)
		}
		if got := fmt.Sprint(s.ID, " ", s.TargetPort, " ", s.TLSCheck, " ", from, " ", s.SendHeader); got != c.want {
			t.Errorf("%s: %s, want %s", c.line, got, c.want)
		}
	}
}

func TestHeaderWarning(t *testing.T) {
	_, diags := LoadBytes("t.cfg", []byte("internal 127.0.0.1\nproxy -H0.0.0.0/0\n"))
	if len(diags) != 1 || !strings.Contains(diags[0].String(), "t.cfg:2:9: warning: proxy: -H: anybody can claim any client address here") {
		t.Error(diags)
	}
}
