package sockopt

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestTable(t *testing.T) {
	for name, o := range table {
		if o.Name != name || o.Roles == 0 || o.Roles&^all != 0 {
			t.Errorf("%s: %+v", name, o)
		}
		if o.Bare != needsValue && o.check(o.Bare) != nil {
			t.Errorf("%s: the value of the bare name is out of bounds", name)
		}
		if got, ok := Lookup(name); !ok || got != o {
			t.Errorf("Lookup(%s) = %+v, %v", name, got, ok)
		}
	}
	for alias, name := range aliases {
		if o, ok := Lookup(alias); !ok || o.Name != name {
			t.Errorf("Lookup(%s) = %+v, %v", alias, o, ok)
		}
	}
	if _, ok := Lookup("TCP_NOPE"); ok {
		t.Error("an unknown name was found")
	}
	if names := Names(Server); !slices.IsSorted(names) || slices.Contains(names, "TCP_DEFER_ACCEPT") {
		t.Errorf("server options: %v", names)
	}
}

func TestRoles(t *testing.T) {
	got := ""
	for _, r := range []Role{Listen, Client, Server} {
		got += "-o" + r.Letter() + " " + r.String() + " "
	}
	if got != "-ol listening -oc client -os server " {
		t.Error(got)
	}
	for _, c := range []struct {
		name string
		want bool
	}{{"SO_SNDBUF", true}, {"TCP_NODELAY", false}, {"IP_TOS", false}, {"SO_REUSEPORT", false}} {
		if o, _ := Lookup(c.name); o.ForUnix() != c.want {
			t.Errorf("%s on Unix sockets: %v", c.name, !c.want)
		}
	}
}

func TestParse(t *testing.T) {
	cases := []struct {
		name, value string
		given       bool
		n           int
		text, err   string
	}{
		{"TCP_NODELAY", "", false, 1, "", ""},
		{"TCP_NODELAY", "0", true, 0, "", ""},
		{"TCP_NODELAY", "2", true, 0, "", `"2": expected 0 or 1`},
		{"TCP_NODELAY", "", true, 0, "", `"": expected 0 or 1`},
		{"TCP_NODELAY", "+1", true, 0, "", `"+1": expected 0 or 1`},
		{"TCP_NODELAY", "01", true, 0, "", `"01": expected 0 or 1`},
		{"TCP_MAXSEG", "", false, 0, "", "a value is missing; expected TCP_MAXSEG=VALUE with a number from 88 to 32767"},
		{"TCP_MAXSEG", "1460", true, 1460, "", ""},
		{"TCP_MAXSEG", "87", true, 0, "", `"87": expected a number from 88 to 32767`},
		{"SO_MARK", "4294967295", true, 4294967295, "", ""},
		{"SO_MARK", "4294967296", true, 0, "", `"4294967296": expected a number from 0 to 4294967295`},
		{"SO_MARK", "18446744073709551617", true, 0, "", `"18446744073709551617": expected a number from 0 to 4294967295`},
		{"SO_MARK", "-1", true, 0, "", `"-1": expected a number from 0 to 4294967295`},
		{"TCP_CONGESTION", "bbr", true, 0, "bbr", ""},
		{"TCP_CONGESTION", "", true, 0, "", `"": expected 1 to 15 letters, digits, '-' or '_'`},
		{"TCP_CONGESTION", "a b", true, 0, "a b", `"a b": expected 1 to 15 letters, digits, '-' or '_'`},
		{"TCP_CONGESTION", strings.Repeat("x", 16), true, 0, "", `"xxxxxxxxxxxxxxxx": expected 1 to 15 letters, digits, '-' or '_'`},
	}
	for _, c := range cases {
		o, ok := Lookup(c.name)
		if !ok {
			t.Fatalf("%s is unknown", c.name)
		}
		n, text, err := o.Parse(c.value, c.given)
		msg := ""
		if err != nil {
			msg = err.Error()
		}
		if msg != c.err || err == nil && (n != c.n || text != c.text) {
			t.Errorf("%s=%s: got %d %q %q, want %d %q %q", c.name, c.value, n, text, msg, c.n, c.text, c.err)
		}
	}
}

// privileged are the options that need CAP_NET_ADMIN or CAP_NET_RAW.
var privileged = []string{"SO_MARK", "IP_TRANSPARENT"}

// testValue returns a value that differs from the kernel's default.
func testValue(o Option) (int, string) {
	switch {
	case o.Kind == String:
		return 0, "reno"
	case o.Name == "SO_INCOMING_CPU":
		return 0, ""
	case o.Name == "SO_PRIORITY":
		return 5, ""
	case o.Name == "IP_TOS":
		return 16, ""
	case o.Kind == Bool && o.Name == "TCP_QUICKACK":
		return 0, ""
	case o.Kind == Bool:
		return 1, ""
	case o.Name == "SO_SNDBUF" || o.Name == "SO_RCVBUF":
		return 65536, ""
	}
	return max(o.Min, min(o.Max, 100)), ""
}

// TestApply sets every option on a real socket of each family.
func TestApply(t *testing.T) {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		for name, o := range table {
			fd := newSocket(t, family)
			value, text := testValue(o)
			err := Apply(fd, name, value, text)
			if errors.Is(err, unix.EPERM) && slices.Contains(privileged, name) {
				continue
			}
			if err != nil {
				t.Errorf("family %d: %v", family, err)
			}
		}
	}
	if err := Apply(-1, "TCP_NODELAY", 1, ""); !errors.Is(err, unix.EBADF) {
		t.Errorf("bad descriptor: %v", err)
	}
	if err := Apply(0, "TCP_NOPE", 1, ""); err == nil {
		t.Error("an unknown name was accepted")
	}
}

func TestTrafficClass(t *testing.T) {
	fd := newSocket(t, unix.AF_INET6)
	if err := Apply(fd, "IP_TOS", 16, ""); err != nil {
		t.Fatal(err)
	}
	if v, err := unix.GetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_TCLASS); err != nil || v != 16 {
		t.Errorf("traffic class %d, %v", v, err)
	}
}

// TestInherited compares the table with what an accepted socket has.
func TestInherited(t *testing.T) {
	for name, o := range table {
		if !o.Allows(Listen) || name == "SO_INCOMING_CPU" || name == "TCP_MAXSEG" {
			continue // the accepted socket has a value of its own
		}
		want := listenValue(t, o)
		got := acceptedValue(t, o)
		if want == "" {
			continue
		}
		if o.Inherited && got != want {
			t.Errorf("%s: listening socket %q, accepted socket %q", name, want, got)
		}
	}
}

// listenValue is the value an option reads as after it was set, "" when it
// cannot be set here.
func listenValue(t *testing.T, o Option) string {
	fd := newSocket(t, unix.AF_INET)
	value, text := testValue(o)
	if err := o.Apply(fd, value, text); err != nil {
		return ""
	}
	return read(t, fd, o)
}

// acceptedValue is the value in a socket accepted from one with the option.
func acceptedValue(t *testing.T, o Option) string {
	t.Helper()
	listener := newSocket(t, unix.AF_INET)
	value, text := testValue(o)
	_ = o.Apply(listener, value, text)
	must(t, unix.Bind(listener, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	must(t, unix.Listen(listener, 1))
	addr, err := unix.Getsockname(listener)
	must(t, err)
	client := newSocket(t, unix.AF_INET)
	must(t, unix.Connect(client, addr))
	_, err = unix.Write(client, []byte("x"))
	must(t, err)
	fd, _, err := unix.Accept(listener)
	must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	return read(t, fd, o)
}

func read(t *testing.T, fd int, o Option) string {
	t.Helper()
	s, err := unix.GetsockoptString(fd, o.Level, o.Opt)
	must(t, err)
	if o.Kind == String {
		return s
	}
	n, err := unix.GetsockoptInt(fd, o.Level, o.Opt)
	must(t, err)
	return strconv.Itoa(n)
}

func newSocket(t *testing.T, family int) int {
	t.Helper()
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
