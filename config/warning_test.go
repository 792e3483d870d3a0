package config

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestWarnings(t *testing.T) {
	const safe = "auth strong\nproxy -i127.0.0.1\n"
	cases := []struct{ name, text, want string }{
		{"useless list", "allow * 10.0.0.1\ndeny *\nproxy -i127.0.0.1",
			"3:1: warning: proxy: auth none lets everybody in: the access list that begins at 1:1 has no effect; write auth iponly or auth strong before this line"},
		{"none among others", "auth strong none\nusers a:CL:b\nproxy -i127.0.0.1",
			"1:1: warning: auth: with none among the methods everybody is let in, whatever the others say"},
		{"method twice", "auth iponly iponly\nproxy -i127.0.0.1", "1:13: warning: auth: iponly is named twice"},
		{"useless users", "users a:CL:b\nauth iponly\nproxy -i127.0.0.1", "1:1: warning: users: have no effect: no service has auth strong"},
		{"no names", "users a:CL:b\nauth strong\ntlspr -i127.0.0.1\nauth useronly iponly\ntlspr -i127.0.0.2",
			"3:1: warning: tlspr: clients of this service have no way to give a name: nobody is let in; write auth iponly before this line"},
		{"header from loopback", "tcppm -H -i192.0.2.1 1 192.0.2.2 2\ntcppm -H 2 192.0.2.2 2\ntcppm -H192.0.2.3 -i192.0.2.1 3 192.0.2.2 2\ntcppm -H -iunix:/x 3 192.0.2.2 2",
			"1:1: warning: tcppm: -H believes the headers of this host only; name the proxies in front, as in -H192.0.2.1"},
		{"no users", safe, "2:1: warning: proxy: auth strong, but there are no users: nobody can log in"},
		{"users after the service", safe + "users a:CL:b", ""},
		{"user twice", safe + "users a:CL:b\nusers c:CL:d a:CL:e", `4:14: warning: users: "a" is also at 3:7; this one counts`},
		{"unknown user", "users a:CL:b\nauth strong\nallow a,c\nproxy -i127.0.0.1\nproxy -i127.0.0.2",
			`3:1: warning: allow: there is no user "c" in any users command, so nobody can match this name`},
		{"user for iponly", "auth iponly\nallow a 127.0.0.1\nproxy -i127.0.0.1",
			"2:1: warning: allow: this rule names users, but the service at 3:1 does not ask for a name (auth iponly): it never matches there"},
		{"user for useronly", "auth useronly\nallow a\nproxy -i127.0.0.1", ""},
		{"after the last service", "proxy -i127.0.0.1\nmaxconn 5\nmaxconn 6\nflush\nauth strong\nmaxconn 7",
			"2:1: warning: maxconn: this line and 2 more after it have no effect: no service follows\n" +
				"4:1: warning: flush: has no effect: no service follows\n" +
				"5:1: warning: auth: has no effect: no service follows"},
		{"indented", "proxy -i127.0.0.1\n  allow\talice\n deny *\n  in the users group", "2:3: warning: allow: a line that begins with a blank is a comment"},
		{"indented comments", "\t\n  # deny\n log of all\n denying\nproxy -i127.0.0.1", ""},
		{"between services", "proxy -i127.0.0.1\nmaxconn 5\nproxy -i127.0.0.2", ""},
		{"no effect", "daemon\nstacksize 8000\ndaemon\nservice\nproxy -i127.0.0.1",
			"1:1: warning: daemon: has no effect here\n2:1: warning: stacksize: has no effect here\n4:1: warning: service: has no effect here"},
		{"twice", "workers 1\nworkers 2\nproxy -i127.0.0.1", "2:1: warning: workers: replaces what 1:1 says"},
		{"setuid alone", "setuid nobody\nproxy -i127.0.0.1", "1:1: warning: setuid: without setgid the workers keep the group of the supervisor"},
		{"port of a Unix socket", "proxy -p8 -iunix:/x", "1:9: warning: proxy: -p has no effect on a service that listens on a Unix socket"},
		{"port of sockets of systemd", "proxy -p8 -isystemd:x", "1:9: warning: proxy: -p has no effect on a service that takes sockets of systemd: they have their ports"},
		{"target port of a Unix socket", "tcppm 80 unix:/x 5", "1:18: warning: tcppm: the port has no effect: the target is a Unix socket; write 0"},
		{"target family", "tcppm -i127.0.0.1 -e192.0.2.1 1 ::1 1",
			"1:1: warning: tcppm: the target [::1]:1 cannot be reached from the external address 192.0.2.1, which is of the other family"},

		{"open, any address", "proxy", "1:1: warning: proxy: this is an open proxy: it listens on every address of this host (0.0.0.0:3128) and lets everybody in; restrict it by internal or -i, or by auth and an access list"},
		{"open, public", "socks -i8.8.8.8", "1:1: warning: socks: this is an open proxy: it listens on the public address 8.8.8.8:1080 and lets everybody in; restrict it by internal or -i, or by auth and an access list"},
		{"open, IPv6", "socks -i2a00::1", "1:1: warning: socks: this is an open proxy: it listens on the public address [2a00::1]:1080 and lets everybody in; restrict it by internal or -i, or by auth and an access list"},
		{"open, no list", "auth iponly\nsocks -i8.8.8.8", "2:1: warning: socks: this is an open proxy: it listens on the public address 8.8.8.8:1080 and lets everybody in; restrict it by internal or -i, or by auth and an access list"},
		{"open, allow all", "auth iponly\ndeny * * * 25\nallow *\nsocks -i8.8.8.8", "4:1: warning: socks: this is an open proxy: it listens on the public address 8.8.8.8:1080 and lets everybody in; restrict it by internal or -i, or by auth and an access list"},
		{"closed by list", "auth iponly\nallow * 10.0.0.0/8\nsocks", ""},
		{"closed by deny", "auth iponly\ndeny *\nsocks", ""},
		{"closed by password", "users a:CL:b\nauth strong\nsocks", ""},
		{"not public", "proxy -i10.0.0.1\nproxy -i172.16.0.1\nproxy -i192.168.1.1\nproxy -i::1\nproxy -ifd00::1\nproxy -i100.64.0.1\nproxy -iunix:/x", ""},
		{"port map", "tcppm 1 h 1", ""},

		{"shadowed", "auth iponly\nallow *\nallow * 10.0.0.1\ndeny *\nproxy -i127.0.0.1",
			"3:1: warning: allow: this rule can never match: the allow at 2:1 matches all of its requests first\n" +
				"4:1: warning: deny: this rule can never match: the allow at 2:1 matches all of its requests first"},
		{"flushed", "auth iponly\nallow *\nproxy -i127.0.0.1\nflush\nallow * 10.0.0.1\nproxy -i127.0.0.2", ""},
	}
	for _, c := range cases {
		cfg, diags := loadText(c.text, nil)
		if cfg == nil {
			t.Errorf("%s: refused: %v", c.name, lines(diags))
			continue
		}
		if got := strings.Join(lines(diags), "\n"); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

func TestWarningLimit(t *testing.T) {
	c, diags := loadText("auth iponly\nallow *\n"+strings.Repeat("deny *\n", 1000)+"proxy -i127.0.0.1\n", nil)
	if c == nil || len(diags) != maxWarnings+1 || !strings.HasPrefix(diags[maxWarnings].Text, "too many warnings") {
		t.Errorf("%d diagnostics, the last %v", len(diags), diags[len(diags)-1])
	}
}

// TestOpenProxy tries lists of services on public addresses.
func TestOpenProxy(t *testing.T) {
	cases := []struct {
		auth, rules, listen string
		open                bool
	}{
		{"iponly", "allow * 0.0.0.0/0", "0.0.0.0", true},
		{"iponly", "allow * 0.0.0.0-255.255.255.255", "8.8.8.8", true},
		{"iponly", "allow * 0.0.0.0/1,128.0.0.0/1", "8.8.8.8", true},
		{"iponly", "allow * 0.0.0.0/1,128.0.0.1-255.255.255.255", "8.8.8.8", false},
		{"iponly", "allow * ::/0", "2a00::1", true},
		{"iponly", "allow * ::/0", "8.8.8.8", false},
		{"iponly", "allow * 0.0.0.0/0", "2a00::1", false},
		{"iponly", "allow * * * * * 1-7", "8.8.8.8", true},
		{"iponly", "allow * * * * * 0-6", "8.8.8.8", true},
		{"iponly", "allow * * * * * * 00:00:00-24:00:00", "8.8.8.8", true},
		{"iponly", "allow * * * 1-65535", "8.8.8.8", true},
		{"iponly", "allow * * * 80,443", "8.8.8.8", true},
		{"iponly", "allow * * 0.0.0.0/0", "8.8.8.8", true},
		{"iponly", "allow * * * * HTTP,HTTPS", "8.8.8.8", true},
		{"iponly", "allow * * * * ADMIN", "8.8.8.8", false},
		{"iponly", "allow * * *.example.com", "8.8.8.8", false},
		{"iponly", "allow bob", "8.8.8.8", false},
		{"iponly", "deny * 0.0.0.0/0\nallow *", "8.8.8.8", false},
		{"iponly", "deny * * * 1-65535\nallow *", "8.8.8.8", false},
		{"iponly", "deny * * * * * 0-7\nallow *", "8.8.8.8", false},
		{"iponly", "deny * * * 25\nallow * * * 80", "8.8.8.8", true},
		{"useronly", "allow *", "8.8.8.8", true},
		{"useronly", "allow bob", "8.8.8.8", true},
		{"strong iponly", "allow *", "8.8.8.8", true},
		{"strong", "allow *", "8.8.8.8", false},
	}
	for _, c := range cases {
		_, diags := loadText(fmt.Sprintf("auth %s\n%s\nproxy -i%s\n", c.auth, c.rules, c.listen), nil)
		if got := strings.Contains(strings.Join(lines(diags), "\n"), "open proxy"); got != c.open {
			t.Errorf("%+v: %v", c, lines(diags))
		}
	}
}

// TestShadowed checks pairs of rules, in fields: is the second covered?
func TestShadowed(t *testing.T) {
	cases := []struct {
		first, second string
		want          bool
	}{
		{"*", "bob", true},
		{"bob", "*", false},
		{"bob,al", "al", true},
		{"bob", "bob,al", false},
		{"* 10.0.0.0/8", "* 10.1.0.0-10.2.0.0,10.9.9.9", true},
		{"* 10.0.0.0/8", "* 10.1.0.0-11.0.0.0", false},
		{"* 10.0.0.0/9,10.128.0.0/9", "* 10.0.0.0/8", true},
		{"* 255.0.0.0/8,10.0.0.1", "* 255.255.255.255,10.0.0.1", true},
		{"* 0.0.0.0/0", "* ::1", false},
		{"* * 10.0.0.0/8", "* * 10.0.0.1", true},
		{"* * 10.0.0.0/8", "* * 10.0.0.1,host", false},
		{"* * host,10.0.0.1", "* * HOST.", true},
		{"* * *.example.com", "* * a.example.com,*.b.example.com", true},
		{"* * *.example.com", "* * example.com", false},
		{"* * *.example.com", "* * *.example.com*", false},
		{"* * ads*", "* * adserver.*,ads", true},
		{"* * ads*", "* * *ads*", false},
		{"* * *ads*", "* * bads*,*adsb", true},
		{"* * * 80-89", "* * * 80,85-89", true},
		{"* * * 80-84,85-89", "* * * 81-88", true},
		{"* * * 1-65535", "* * *", true},
		{"* * * 80", "* * * *", false},
		{"* * * * HTTP", "* * * * HTTP_GET,HTTP_POST", true},
		{"* * * * HTTP", "* * * * HTTPS", false},
		{"* * * * HTTP", "*", false},
		{"* * * * * 0-6", "*", true},
		{"* * * * * 1-5", "* * * * * 2,3", true},
		{"* * * * * 1-5", "* * * * * 7", false},
		{"* * * * * * 00:00:00-12:00:00,12:00:00-24:00:00", "*", true},
		{"* * * * * * 08:00:00-12:00:00", "* * * * * * 09:00:00-12:00:00", true},
		{"* * * * * * 08:00:00-12:00:00", "* * * * * * 09:00:00-12:00:01", false},
	}
	for _, c := range cases {
		cfg, diags := loadText(fmt.Sprintf("auth useronly\ndeny %s\nallow %s\nproxy -i127.0.0.1\n", c.first, c.second), nil)
		if cfg == nil {
			t.Errorf("%q, %q: %v", c.first, c.second, lines(diags))
			continue
		}
		if got := len(diags) > 0; got != c.want {
			t.Errorf("%q covers %q: %v, want %v", c.first, c.second, got, c.want)
		}
	}
}

// TestShadowIndex compares the index with the comparison of every pair.
func TestShadowIndex(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		list := make([]Rule, 1+rng.IntN(40))
		for i := range list {
			list[i] = randomRule(rng)
		}
		budget := shadowBudget
		ix := newShadowIndex(list, &budget)
		for i := range list {
			got := ix.coveredBy(i)
			want := false
			for j := range i {
				want = want || ix.rules[j].covers(&ix.rules[i])
			}
			if (got >= 0) != want || got >= i || got >= 0 && !ix.rules[got].covers(&ix.rules[i]) {
				t.Fatalf("rule %d of %+v: got %d, covered %v", i, list, got, want)
			}
		}
	}
}

func randomRule(rng *rand.Rand) Rule {
	var r Rule
	pick := func(n int) int { return max(0, rng.IntN(2*n)-n) }
	for range pick(3) {
		r.Users = append(r.Users, string(rune('a'+rng.IntN(4))))
	}
	block := func() IPRange {
		a := netip.AddrFrom4([4]byte{10, byte(rng.IntN(2)), 0, byte(rng.IntN(4))})
		bits := []int{8, 16, 31, 32}[rng.IntN(4)]
		from := netip.PrefixFrom(a, bits).Masked().Addr()
		return IPRange{from, lastOf(from, bits)}
	}
	for range pick(3) {
		r.Sources = append(r.Sources, block())
	}
	for range pick(3) {
		r.Targets = append(r.Targets, block())
	}
	for range pick(3) {
		name := []string{"ab", "abc", "bc", "b", "xabx"}[rng.IntN(5)]
		r.TargetHosts = append(r.TargetHosts, HostPattern{name, rng.IntN(2) > 0, rng.IntN(2) > 0})
	}
	for range pick(2) {
		from := uint16(1 + rng.IntN(4))
		r.Ports = append(r.Ports, PortRange{from, from + uint16(rng.IntN(3))})
	}
	return r
}

// TestManyRules checks that lists of 10,000 rules of the usual shapes, and of
// the worst ones, are checked in a time that nobody minds.
func TestManyRules(t *testing.T) {
	shapes := map[string]func(i int) string{
		"sources":       func(i int) string { return fmt.Sprintf("allow * 10.%d.%d.0/24", i>>8, i&255) },
		"hosts":         func(i int) string { return fmt.Sprintf("deny * * *.host%d.example", i) },
		"one source":    func(i int) string { return fmt.Sprintf("deny * 10.0.0.0/8 host%d.example", i) },
		"ports":         func(i int) string { return fmt.Sprintf("deny * * * %d", i+1) },
		"source, ports": func(i int) string { return fmt.Sprintf("deny * 10.0.0.0/8 * %d", i+1) },
		"users":         func(i int) string { return fmt.Sprintf("allow u%d", i) },
	}
	for name, shape := range shapes {
		var text strings.Builder
		text.WriteString("auth useronly\n")
		for i := range 10_000 {
			text.WriteString(shape(i) + "\n")
		}
		text.WriteString(shape(5) + "\nproxy -i127.0.0.1\n")
		start := time.Now()
		c, diags := loadText(text.String(), nil)
		took := time.Since(start)
		if c == nil || len(diags) > 1 {
			t.Errorf("%s: %v", name, lines(diags))
		}
		if crowded := strings.Contains(name, "ports"); !crowded && len(diags) != 1 {
			t.Errorf("%s: the repeated rule was not found", name)
		}
		if took > 5*time.Second {
			t.Errorf("%s: took %v", name, took)
		}
		t.Logf("%s: %v", name, took)
	}
}
