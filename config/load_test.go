package config

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestBuiltin(t *testing.T) {
	c, diags := LoadBuiltin()
	if c == nil || len(diags) > 0 {
		t.Fatalf("diagnostics: %v", diags)
	}
	if c.Source != BuiltinSource || len(c.Services) != 2 {
		t.Fatalf("config: %+v", c)
	}
	for i, id := range []string{"proxy@127.0.0.1:3128", "socks@127.0.0.1:1080"} {
		s := service(c, id)
		if s == nil || s.ACL != 0 || s.Log.Kind != LogStdout || c.Services[i].ID != id {
			t.Errorf("service %s: %+v", id, s)
		}
	}
	if service(c, "proxy") != nil {
		t.Error("a service was found by half its ID")
	}
}

func TestLoadFromDisk(t *testing.T) {
	dir := t.TempDir()
	main := filepath.Join(dir, "main.cfg")
	write(t, main, "include sub/inc.cfg\nusers $users\nauth strong\nproxy -i127.0.0.1\n")
	write(t, filepath.Join(dir, "sub", "inc.cfg"), "maxconn 7\n")
	write(t, filepath.Join(dir, "users"), "a:CL:x\nb:CL:y\n")
	c, diags := Load(main)
	if c == nil || len(diags) > 0 {
		t.Fatalf("diagnostics: %v", diags)
	}
	if c.Services[0].MaxConn != 7 || len(c.Users) != 2 || len(c.Files) != 3 {
		t.Errorf("config: %+v", c)
	}

	missing := filepath.Join(dir, "none.cfg")
	c, diags = Load(missing)
	want := missing + ":1:1: error: cannot read \"" + missing + "\": no such file or directory"
	if c != nil || len(diags) != 1 || diags[0].String() != want {
		t.Errorf("got %v, want %s", diags, want)
	}
	if _, diags = Load(dir); len(diags) != 1 || !strings.Contains(diags[0].Text, "is a directory") {
		t.Errorf("directory: %v", diags)
	}
	if _, diags = Load("/dev/zero"); len(diags) != 1 || !strings.Contains(diags[0].Text, "more than 16777216 bytes") {
		t.Errorf("/dev/zero: %v", diags)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// everything uses every command that is carried out.
const everything = `
workers 2
cpus 0-3,6
control /run/x.sock 0660 nobody:nogroup
drain_timeout 60
setgid nogroup
setuid nobody
pidfile /run/x.pid
nserver 192.0.2.53
nserver [2001:db8::1]:5353/tcp
nscache 1000
nscache6 2000
nsrecord Static.Example. 192.0.2.7
nsrecord blocked.example 0.0.0.0
users alice:CL:pa:ss "bob:CL:$1$x"
internal 127.0.0.1
external 192.0.2.1
external 2001:db8::2
maxconn 500
backlog 128
timeouts 2 6 31
log /var/log/x.log
logformat "L%t %U"
auth iponly strong
allow alice,bob 10.0.0.0/8,192.168.1.1-192.168.1.9,::1 *.example.com,ads*,*spam*,10.1.1.1 80,8000-8999 HTTP,CONNECT 1-5,7 08:00:00-17:30:00,20:00:00-24:00:00
deny *
proxy -p8080 -e192.0.2.9 -s3:100,4,50 -g1000,20,5 -b8192 -olTCP_DEFER_ACCEPT=5,TCP_FASTOPEN -ocTCP_NODELAY=0+SO_KEEPALIVE "-osTCP_CONGESTION=cubic SO_MARK=4294967295"
flush
auth none
socks -iunix:@socks -C
tcppm -iunix:/run/t.sock 25 unix:/run/smtp.sock 0
tcppm 26 mail.example.com 25
tcppm -i::1 26 2001:db8::9 25
upgrade_trial 20
upgrade_old 3
end
`

func TestEverything(t *testing.T) {
	c := mustLoad(t, everything)
	p := service(c, "proxy@127.0.0.1:8080")
	if p == nil {
		t.Fatalf("services: %+v", c.Services)
	}
	addr := netip.MustParseAddr
	timeouts := DefaultTimeouts
	timeouts.ByteShort, timeouts.ByteLong, timeouts.StringShort = 2, 6, 31
	want := Service{
		ID: "proxy@127.0.0.1:8080", Kind: Proxy, Pos: Pos{testFile, 27, 1},
		Listen:    Endpoint{Addr: addr("127.0.0.1"), Port: 8080},
		External4: addr("192.0.2.9"), External6: addr("2001:db8::2"),
		Auth: []AuthMethod{AuthIPOnly, AuthStrong}, ACL: 0,
		MaxConn: 500, Backlog: 128, Timeouts: timeouts,
		Log: Log{Kind: LogFile, Path: "/var/log/x.log"}, LogFormat: "L%t %U",
		Splice: Splice{3, 100, 4, 50}, Grace: Grace{1000, 20, 5}, BufferSize: 8192,
		ListenOptions: []SockOpt{{"TCP_DEFER_ACCEPT", 5, ""}, {"TCP_FASTOPEN", 256, ""}},
		ClientOptions: []SockOpt{{"TCP_NODELAY", 0, ""}, {"SO_KEEPALIVE", 1, ""}},
		ServerOptions: []SockOpt{{"TCP_CONGESTION", 0, "cubic"}, {"SO_MARK", 4294967295, ""}},
	}
	if !reflect.DeepEqual(*p, want) {
		t.Errorf("service:\n%+v\nwant:\n%+v", *p, want)
	}
	wantRule := Rule{
		Pos: Pos{testFile, 25, 1}, Allow: true, Users: []string{"alice", "bob"},
		Sources: []IPRange{
			{addr("10.0.0.0"), addr("10.255.255.255")}, {addr("192.168.1.1"), addr("192.168.1.9")}, {addr("::1"), addr("::1")},
		},
		Targets:     []IPRange{{addr("10.1.1.1"), addr("10.1.1.1")}},
		TargetHosts: []HostPattern{{".example.com", true, false}, {"ads", false, true}, {"spam", true, true}},
		Ports:       []PortRange{{80, 80}, {8000, 8999}},
		Operations:  OpHTTP | OpConnect, Weekdays: 0b0111111,
		Times: []TimeRange{{8 * 3600, 17*3600 + 1800}, {20 * 3600, 24 * 3600}},
	}
	if got := c.ACLs[0][0]; !reflect.DeepEqual(got, wantRule) {
		t.Errorf("rule:\n%+v\nwant:\n%+v", got, wantRule)
	}
	if len(c.ACLs) != 1 || len(c.ACLs[0]) != 2 {
		t.Errorf("access lists: %+v", c.ACLs)
	}
	wantIDs := "proxy@127.0.0.1:8080 socks@unix:@socks tcppm@unix:/run/t.sock tcppm@127.0.0.1:26 tcppm@[::1]:26"
	var ids []string
	for _, s := range c.Services {
		ids = append(ids, s.ID)
	}
	if got := strings.Join(ids, " "); got != wantIDs {
		t.Errorf("services %s, want %s", got, wantIDs)
	}
	if s := c.Services[1]; s.ACL != -1 || !s.CloseBoth || s.Splice != DefaultSplice {
		t.Errorf("socks: %+v", s)
	}
	wantResolver := Resolver{
		Servers:   []NameServer{{netip.MustParseAddrPort("192.0.2.53:53"), false}, {netip.MustParseAddrPort("[2001:db8::1]:5353"), true}},
		CacheSize: 1000, CacheSize6: 2000,
		Static: map[string][]netip.Addr{"static.example": {addr("192.0.2.7")}, "blocked.example": {addr("0.0.0.0")}},
	}
	if !reflect.DeepEqual(c.Resolver, wantResolver) {
		t.Errorf("resolver: %+v", c.Resolver)
	}
	wantUsers := []User{{"alice", "CL", "pa:ss"}, {"bob", "CL", "$1$x"}}
	if !reflect.DeepEqual(c.Users, wantUsers) {
		t.Errorf("users: %+v", c.Users)
	}
	rest := *c
	rest.Services, rest.ACLs, rest.Users, rest.Resolver = nil, nil, nil, Resolver{}
	if at := rest.Places.Commands["control"]; at.File != testFile || at.Line == 0 {
		t.Errorf("control at %v", at)
	}
	rest.Places = Places{}
	wantRest := Config{
		Source: testFile, Files: []string{testFile}, Workers: 2, CPUs: []int{0, 1, 2, 3, 6},
		Control:      Control{"/run/x.sock", 0o660, "nobody:nogroup"},
		DrainTimeout: 60, UpgradeTrial: 20, UpgradeOld: 3, SetUID: &Identity{"nobody", 65534}, SetGID: &Identity{"nogroup", 65533}, PIDFile: "/run/x.pid",
	}
	if !reflect.DeepEqual(rest, wantRest) {
		t.Errorf("process: %+v", rest)
	}
}

func TestJSONRoundTrip(t *testing.T) {
	c := mustLoad(t, everything)
	data, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var back Config
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	c.Places = Places{}
	if !reflect.DeepEqual(*c, back) {
		t.Errorf("got:\n%+v\nwant:\n%+v", back, *c)
	}
}

func TestRedacted(t *testing.T) {
	c := mustLoad(t, everything)
	r := c.Redacted()
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(data, []byte("pa:ss")) || bytes.Contains(data, []byte("$1$x")) {
		t.Errorf("a secret shows: %s", data)
	}
	if c.Users[0].Secret != "pa:ss" {
		t.Error("Redacted changed the configuration itself")
	}
	r.Users[0], c.Users[0] = User{}, User{}
	r.Users[1], c.Users[1] = User{}, User{}
	if !reflect.DeepEqual(r, c) {
		t.Error("Redacted changed more than the secrets")
	}
	r.Resolver.Static["static.example"][0] = netip.Addr{}
	if !c.Resolver.Static["static.example"][0].IsValid() {
		t.Error("the copy shares static names with the original")
	}
}

func TestBrackets(t *testing.T) {
	c := mustLoad(t, "internal [::1]\nexternal [2001:db8::1]\nproxy\nproxy -p1 -i[fd00::1] -e[2001:db8::2]\n")
	for i, want := range []string{"[::1]:3128 2001:db8::1", "[fd00::1]:1 2001:db8::2"} {
		if s := c.Services[i]; s.Listen.String()+" "+s.External6.String() != want {
			t.Errorf("%v %v, want %s", s.Listen, s.External6, want)
		}
	}
	for _, bad := range []string{"[127.0.0.1]", "[::1", "::1]", "[]", "[[::1]]"} {
		if c, _ := loadText("proxy -i"+bad, nil); c != nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}
