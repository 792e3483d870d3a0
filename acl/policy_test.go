package acl

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"3proxyd/config"
)

var testUsers = NewUsers([]config.User{
	{Name: "ann", Type: "CL", Secret: "secret"},
	{Name: "bob", Type: "CL", Secret: ""},
	{Name: "old", Type: "CR", Secret: "$1$x"},
})

func login(user, pass string) *Creds {
	return &Creds{HasUser: true, User: user, HasPass: true, Pass: []byte(pass)}
}

func TestVerify(t *testing.T) {
	tests := []struct {
		name, pass string
		want       Code
	}{
		{"ann", "secret", OK},
		{"ann", "Secret", WrongPassword},
		{"ann", "", WrongPassword},
		{"ann", "secret\x00", WrongPassword},
		{"Ann", "secret", UnknownUser},
		{"", "", UnknownUser},
		{"bob", "", OK},
		{"bob", "x", WrongPassword},
		{"old", "$1$x", Unsupported},
	}
	for _, tt := range tests {
		if got := testUsers.Verify(tt.name, []byte(tt.pass)); got != tt.want {
			t.Errorf("Verify(%q, %q) = %d, want %d", tt.name, tt.pass, got, tt.want)
		}
	}
	var none *Users
	if got := none.Verify("ann", nil); got != UnknownUser {
		t.Errorf("no users: %d", got)
	}
}

// The time that a verification takes tells neither whether the user exists nor how
// much of the password is right.
func TestVerifyTime(t *testing.T) {
	long := strings.Repeat("p", 48)
	users := NewUsers([]config.User{{Name: "known-user", Type: "CL", Secret: long}})
	tests := []struct{ name, pass string }{
		{"known-user", long},
		{"known-user", "x" + long[1:]},
		{"known-user", long[1:] + "x"},
		{"other-user", long},
		{"other-user", "x" + long[1:]},
	}
	// The least of many times is the one that nothing has disturbed.
	best := make([]time.Duration, len(tests))
	for range 300 {
		for i, tt := range tests {
			pass := []byte(tt.pass)
			begin := time.Now()
			for range 200 {
				users.Verify(tt.name, pass)
			}
			if took := time.Since(begin); best[i] == 0 || took < best[i] {
				best[i] = took
			}
		}
	}
	if least, most := slices.Min(best), slices.Max(best); most > least*3/2 {
		t.Errorf("200 verifications take %v", best)
	}
}

func TestDecide(t *testing.T) {
	const none, iponly, useronly, strong = config.AuthNone, config.AuthIPOnly, config.AuthUserOnly, config.AuthStrong
	annOnly := []config.Rule{{Allow: true, Users: []string{"ann"}}}
	annDenied := []config.Rule{{Users: []string{"ann"}}, {Allow: true}}
	denyAll := []config.Rule{{}}
	localNet := []config.Rule{{Allow: true, Sources: ranges("10.0.0.0/8")}, {Allow: true, Users: []string{"ann"}}}
	byAddr := []config.Rule{{Targets: ranges("127.0.0.0/8")}, {Allow: true}}
	type methods = []config.AuthMethod

	tests := []struct {
		name    string
		methods methods
		rules   []config.Rule
		creds   *Creds
		client  string
		code    Code
		rule    int
		user    string
	}{
		{"nothing configured", nil, denyAll, nil, "", OK, -1, ""},
		{"none ignores the list", methods{none}, denyAll, login("x", "y"), "", OK, -1, "x"},
		{"iponly without list", methods{iponly}, nil, nil, "", OK, -1, ""},
		{"iponly ignores the user", methods{iponly}, annOnly, login("ann", "secret"), "", NoRule, -1, "ann"},
		{"iponly denied", methods{iponly}, denyAll, nil, "", Denied, 0, ""},
		{"useronly", methods{useronly}, annOnly, &Creds{HasUser: true, User: "ann"}, "", OK, 0, "ann"},
		{"useronly without", methods{useronly}, annOnly, nil, "", NoUser, -1, ""},
		{"useronly empty", methods{useronly}, nil, &Creds{HasUser: true}, "", NoUser, -1, ""},
		{"strong", methods{strong}, annOnly, login("ann", "secret"), "", OK, 0, "ann"},
		{"strong no list", methods{strong}, nil, login("ann", "secret"), "", OK, -1, "ann"},
		{"strong wrong", methods{strong}, annOnly, login("ann", "x"), "", WrongPassword, -1, "ann"},
		{"strong unknown", methods{strong}, annOnly, login("eve", "x"), "", UnknownUser, -1, "eve"},
		{"strong without", methods{strong}, annOnly, nil, "", NoUser, -1, ""},
		{"strong no password", methods{strong}, annOnly, &Creds{HasUser: true, User: "ann"}, "", WrongPassword, -1, "ann"},
		{"strong denied", methods{strong}, annDenied, login("ann", "secret"), "", Denied, 0, "ann"},
		{"iponly strong by address", methods{iponly, strong}, localNet, nil, "10.1.1.1", OK, 0, ""},
		{"iponly strong asks", methods{iponly, strong}, localNet, nil, "192.0.2.1", NoUser, -1, ""},
		{"iponly strong by user", methods{iponly, strong}, localNet, login("ann", "secret"), "192.0.2.1", OK, 1, "ann"},
		{"iponly strong wrong", methods{iponly, strong}, localNet, login("ann", "x"), "192.0.2.1", WrongPassword, -1, "ann"},
		{"a denied user stays denied", methods{strong, iponly}, annDenied, login("ann", "secret"), "", Denied, 0, "ann"},
		{"strong iponly asks", methods{strong, iponly}, denyAll, nil, "", NoUser, 0, ""},
		{"unknown method", methods{"magic"}, nil, nil, "", Unsupported, -1, ""},
		{"address needed", methods{iponly}, byAddr, nil, "", OK, 1, ""},
		{"no address needed to ask", methods{strong}, byAddr, nil, "", NoUser, -1, ""},
	}
	for _, tt := range tests {
		var list *List
		if tt.rules != nil {
			list = Compile(tt.rules)
		}
		p := NewPolicy(tt.methods, list, testUsers)
		r := Request{Client: addr(tt.client), Host: "x.test", Op: config.OpConnect}
		d := p.Decide(&r, tt.creds)
		want := Decision{Code: tt.code, Rule: tt.rule, User: tt.user, NeedAddr: tt.name == "address needed"}
		if d != want {
			t.Errorf("%s: %+v, want %+v", tt.name, d, want)
		}
		if n := testing.AllocsPerRun(100, func() { p.Decide(&r, tt.creds) }); n != 0 {
			t.Errorf("%s: %v allocations", tt.name, n)
		}
	}
}

func TestPolicyProperties(t *testing.T) {
	const none, iponly, useronly, strong = config.AuthNone, config.AuthIPOnly, config.AuthUserOnly, config.AuthStrong
	annOnly := Compile([]config.Rule{{Allow: true, Users: []string{"ann"}}, {}})
	anyone := Compile([]config.Rule{{Allow: true, Sources: ranges("10.0.0.0/8")}})
	type methods = []config.AuthMethod
	tests := []struct {
		methods                    methods
		list                       *List
		needs, anonymous, trivial  bool
		nobody, wrong, right, name Code
	}{
		{nil, nil, false, true, true, OK, OK, OK, OK},
		{methods{none}, annOnly, false, true, true, OK, OK, OK, OK},
		{methods{iponly}, nil, false, true, true, OK, OK, OK, OK},
		{methods{iponly}, annOnly, false, false, false, OK, OK, OK, OK},
		{methods{iponly}, anyone, false, true, false, OK, OK, OK, OK},
		{methods{strong}, nil, true, false, false, NoUser, WrongPassword, OK, WrongPassword},
		{methods{useronly}, nil, true, false, false, NoUser, OK, OK, OK},
		{methods{iponly, strong}, annOnly, true, false, false, NoUser, WrongPassword, OK, WrongPassword},
		{methods{iponly, strong}, anyone, true, true, false, OK, OK, OK, OK},
		{methods{strong, none}, annOnly, true, true, false, OK, OK, OK, OK},
	}
	for _, tt := range tests {
		p := NewPolicy(tt.methods, tt.list, testUsers)
		if p.NeedsCreds() != tt.needs || p.Anonymous() != tt.anonymous || p.Trivial() != tt.trivial {
			t.Errorf("%v: needs %v, anonymous %v, trivial %v", tt.methods, p.NeedsCreds(), p.Anonymous(), p.Trivial())
		}
		got := [4]Code{p.CheckCreds(nil), p.CheckCreds(login("ann", "x")), p.CheckCreds(login("ann", "secret")), p.CheckCreds(&Creds{HasUser: true, User: "ann"})}
		if want := [4]Code{tt.nobody, tt.wrong, tt.right, tt.name}; got != want {
			t.Errorf("%v: CheckCreds %v, want %v", tt.methods, got, want)
		}
	}
}

// TestRecheck decides about requests that an earlier policy has allowed, without
// the password.
func TestRecheck(t *testing.T) {
	users := func(secret string) *Users {
		return NewUsers([]config.User{{Name: "ann", Type: "CL", Secret: secret}, {Name: "bob", Type: "CL", Secret: "b"}})
	}
	only := func(names ...string) *List { return Compile([]config.Rule{{Allow: true, Users: names}}) }
	strong, none := []config.AuthMethod{config.AuthStrong}, []config.AuthMethod{config.AuthNone}
	useronly, iponly := []config.AuthMethod{config.AuthUserOnly}, []config.AuthMethod{config.AuthIPOnly}
	both := []config.AuthMethod{config.AuthIPOnly, config.AuthStrong}
	for name, c := range map[string]struct {
		before, now *Policy
		user        string
		want        Code
	}{
		"nothing changed":         {NewPolicy(strong, nil, users("a")), NewPolicy(strong, nil, users("a")), "ann", OK},
		"still on the list":       {NewPolicy(strong, nil, users("a")), NewPolicy(strong, only("ann"), users("a")), "ann", OK},
		"taken off the list":      {NewPolicy(strong, only("ann", "bob"), users("a")), NewPolicy(strong, only("bob"), users("a")), "ann", NoRule},
		"another password":        {NewPolicy(strong, nil, users("a")), NewPolicy(strong, nil, users("z")), "ann", WrongPassword},
		"user removed":            {NewPolicy(strong, nil, users("a")), NewPolicy(strong, nil, NewUsers(nil)), "ann", UnknownUser},
		"name never verified":     {NewPolicy(useronly, nil, users("a")), NewPolicy(strong, nil, users("a")), "ann", WrongPassword},
		"anonymous to strong":     {NewPolicy(none, nil, users("a")), NewPolicy(strong, nil, users("a")), "", NoUser},
		"let in by address first": {NewPolicy(both, nil, users("a")), NewPolicy(strong, nil, users("a")), "ann", WrongPassword},
		"strong after address":    {NewPolicy(both, only("ann"), users("a")), NewPolicy(both, only("ann"), users("a")), "ann", OK},
		"to none":                 {NewPolicy(strong, nil, users("a")), NewPolicy(none, nil, nil), "ann", OK},
		"address refused":         {NewPolicy(iponly, nil, nil), NewPolicy(iponly, Compile([]config.Rule{{Allow: false}}), nil), "", Denied},
	} {
		r := &Request{Client: netip.MustParseAddr("127.0.0.1"), Addr: netip.MustParseAddr("192.0.2.1"), Port: 80, Op: config.OpConnect}
		if got := c.now.Recheck(r, c.user, c.before); got.Code != c.want {
			t.Errorf("%s: %d instead of %d", name, got.Code, c.want)
		}
	}
}

// TestVerifiedUser rechecks a user who was let in by a password that the rules in
// force then do not have.
func TestVerifiedUser(t *testing.T) {
	strong := []config.AuthMethod{config.AuthStrong}
	policy := func(secret string) *Policy {
		return NewPolicy(strong, nil, NewUsers([]config.User{{Name: "ann", Type: "CL", Secret: secret}}))
	}
	digest := policy("one").SecretDigest("ann")
	if len(digest) == 0 || policy("one").SecretDigest("bob") != nil || NewPolicy(nil, nil, testUsers).SecretDigest("ann") != nil {
		t.Errorf("digest %x", digest)
	}
	was := VerifiedUser("ann", digest)
	for secret, want := range map[string]Code{"one": OK, "other": WrongPassword} {
		if d := policy(secret).Recheck(&Request{}, "ann", was); d.Code != want {
			t.Errorf("with the password %s: %v, want %v", secret, d.Code, want)
		}
	}
	if d := policy("one").Recheck(&Request{}, "bob", was); d.Code == OK {
		t.Error("another user is allowed")
	}
}
