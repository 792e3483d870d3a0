package peer

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"3proxyd/bench/scenario"
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

func TestContenders(t *testing.T) {
	list, err := scenario.ParseList("all,published")
	if err != nil {
		t.Fatal(err)
	}
	for _, sc := range list {
		for _, name := range Contenders(sc) {
			if p, err := Find(name); err != nil || p.Name != name || !p.Serves(sc.Mode) {
				t.Errorf("%s: %s is no peer for it (%v)", sc.Name, name, err)
			}
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

func TestGroupWith(t *testing.T) {
	for options, want := range map[string]Group{"": Splice, "-s0": Copy, "-b16384 -s3": Splice, "-s0 -s": Splice} {
		if got := daemon.GroupWith(options); got != want {
			t.Errorf("GroupWith(%q) = %s, want %s", options, got, want)
		}
	}
}

func TestVersionOf(t *testing.T) {
	path := t.TempDir() + "/proxy"
	script := "#!/bin/sh\n# 3proxy-9.8.7 splice()\necho first line\necho stunnel 5.6 on x\nexit 3\n"
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		peer *Peer
		want string
	}{{nginx, "first line"}, {stunnel, "stunnel 5.6 on x"}, {threeProxy, "3proxy-9.8.7"}} {
		if got := tt.peer.VersionOf(path); got != tt.want {
			t.Errorf("version of %s is %q, want %q", tt.peer.Name, got, tt.want)
		}
	}
	if err := threeProxySplice.Usable(path); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if threeProxySplice.Usable(path) == nil || threeProxy.Usable(path) != nil {
		t.Error("what the binary lacks is not told")
	}
}

// TestStunnelListens starts the real one, since no scenario does.
func TestStunnelListens(t *testing.T) {
	path, err := stunnel.Lookup()
	if err != nil {
		t.Skip(err)
	}
	home := netip.MustParseAddr("127.0.0.1")
	e := Env{
		Dir: t.TempDir(), Listen: home, Out: home, Origin: netip.MustParseAddrPort("127.0.0.1:8000"),
		OriginTLS: netip.MustParseAddrPort("127.0.0.1:8443"), Files: 1000,
	}
	args, err := stunnel.Configure(e)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	for _, m := range stunnel.Modes {
		deadline := time.Now().Add(10 * time.Second)
		for {
			conn, err := net.Dial("tcp", e.at(m))
			if err == nil {
				_ = conn.Close()
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %v", m, err)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}
