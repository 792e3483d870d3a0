package peer

import (
	"net/netip"
	"os"
	"strings"
	"testing"
)

func TestFind(t *testing.T) {
	for label, want := range map[string]string{
		"3proxyd": "3proxyd", "3proxyd-old": "3proxyd", "haproxy": "haproxy",
		"haproxy-splice": "haproxy-splice", "haproxy-splice-auto": "haproxy-splice-auto",
		"3proxy": "3proxy", "3proxy-devel": "3proxy", "3proxy-splice-x": "3proxy-splice", "haproxy-x": "haproxy", "direct": "direct",
	} {
		if p, err := Find(label); err != nil || p.Name != want {
			t.Errorf("Find(%q) = %v, %v; want %s", label, p, err, want)
		}
	}
	for _, label := range []string{"", "3prox", "nginxx"} {
		if p, err := Find(label); err == nil {
			t.Errorf("Find(%q) = %s, want an error", label, p.Name)
		}
	}
}

func TestConfigure(t *testing.T) {
	for _, p := range All {
		if p.Configure == nil {
			continue
		}
		e := Env{
			Dir: t.TempDir(), Listen: netip.MustParseAddr("10.0.1.1"), Out: netip.MustParseAddr("10.0.2.1"),
			Origin: netip.MustParseAddrPort("10.0.2.2:8000"), CPUs: []int{1, 2}, Files: 20000, Options: "-s0", Lines: []string{"maxconn 7"},
		}
		if _, err := p.Configure(e); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		files, _ := os.ReadDir(e.Dir)
		for _, f := range files {
			text, _ := os.ReadFile(e.Dir + "/" + f.Name())
			if strings.Contains(string(text), "%!") {
				t.Errorf("%s: %s is malformed:\n%s", p.Name, f.Name(), text)
			}
		}
	}
}
