// Package sockopt knows the socket options that a service line may set.
//
// One table has, for each option, its number, the values it takes and the
// sockets it makes sense for. Names are those of setsockopt(2) in socket(7),
// tcp(7) and ip(7).
package sockopt

import (
	"fmt"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Kind is the kind of value of an option.
type Kind int

// The kinds of value.
const (
	Bool Kind = iota
	Int
	String
)

// Role is the purpose of a socket.
type Role int

// The roles: listening sockets (-ol), accepted ones (-oc) and those connected
// to servers (-os).
const (
	Listen Role = 1 << iota
	Client
	Server

	all = Listen | Client | Server
)

// Letter returns the letter of the role's -o option.
func (r Role) Letter() string {
	switch r {
	case Listen:
		return "l"
	case Client:
		return "c"
	}
	return "s"
}

// String names the role.
func (r Role) String() string {
	switch r {
	case Listen:
		return "listening"
	case Client:
		return "client"
	}
	return "server"
}

// Option is one socket option.
type Option struct {
	Name  string
	Level int
	Opt   int
	Kind  Kind
	// Min and Max bound the value of an Int and the length of a String.
	Min, Max int
	// Bare is the value of a name that stands alone; needsValue when it
	// cannot.
	Bare int
	// Roles are the sockets the option makes sense for.
	Roles Role
	// Inherited is set when an accepted socket has the value of its listening
	// socket.
	Inherited bool
}

const needsValue = -1

// maxCongestion is the length of the longest name of a congestion control
// algorithm (TCP_CA_NAME_MAX less the NUL byte).
const maxCongestion = 15

const maxInt = 1<<31 - 1

var table = makeTable([]Option{
	{"TCP_NODELAY", unix.IPPROTO_TCP, unix.TCP_NODELAY, Bool, 0, 1, 1, all, true},
	{"TCP_CORK", unix.IPPROTO_TCP, unix.TCP_CORK, Bool, 0, 1, 1, all, true},
	{"TCP_DEFER_ACCEPT", unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, Int, 0, 3600, 1, Listen, false},
	{"TCP_QUICKACK", unix.IPPROTO_TCP, unix.TCP_QUICKACK, Bool, 0, 1, 1, Client | Server, false},
	{"TCP_FASTOPEN", unix.IPPROTO_TCP, unix.TCP_FASTOPEN, Int, 0, 65535, 256, Listen, false},
	{"TCP_FASTOPEN_CONNECT", unix.IPPROTO_TCP, unix.TCP_FASTOPEN_CONNECT, Bool, 0, 1, 1, Server, false},
	{"TCP_MAXSEG", unix.IPPROTO_TCP, unix.TCP_MAXSEG, Int, 88, 32767, needsValue, Listen | Server, true},
	{"TCP_CONGESTION", unix.IPPROTO_TCP, unix.TCP_CONGESTION, String, 1, maxCongestion, needsValue, all, true},
	{"TCP_USER_TIMEOUT", unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, Int, 0, maxInt, needsValue, all, true},
	{"TCP_KEEPIDLE", unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, Int, 1, 32767, needsValue, all, true},
	{"TCP_KEEPINTVL", unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, Int, 1, 32767, needsValue, all, true},
	{"TCP_KEEPCNT", unix.IPPROTO_TCP, unix.TCP_KEEPCNT, Int, 1, 127, needsValue, all, true},
	{"TCP_NOTSENT_LOWAT", unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, Int, 0, maxInt, needsValue, all, true},
	{"SO_REUSEADDR", unix.SOL_SOCKET, unix.SO_REUSEADDR, Bool, 0, 1, 1, Listen | Server, true},
	{"SO_REUSEPORT", unix.SOL_SOCKET, unix.SO_REUSEPORT, Bool, 0, 1, 1, Listen | Server, true},
	{"SO_KEEPALIVE", unix.SOL_SOCKET, unix.SO_KEEPALIVE, Bool, 0, 1, 1, all, true},
	{"SO_DONTROUTE", unix.SOL_SOCKET, unix.SO_DONTROUTE, Bool, 0, 1, 1, all, true},
	{"SO_SNDBUF", unix.SOL_SOCKET, unix.SO_SNDBUF, Int, 1, 1 << 30, needsValue, all, true},
	{"SO_RCVBUF", unix.SOL_SOCKET, unix.SO_RCVBUF, Int, 1, 1 << 30, needsValue, all, true},
	{"SO_BUSY_POLL", unix.SOL_SOCKET, unix.SO_BUSY_POLL, Int, 0, 1_000_000, needsValue, all, true},
	{"SO_PRIORITY", unix.SOL_SOCKET, unix.SO_PRIORITY, Int, 0, maxInt, needsValue, Client | Server, false},
	{"SO_MARK", unix.SOL_SOCKET, unix.SO_MARK, Int, 0, 1<<32 - 1, needsValue, all, true},
	{"SO_INCOMING_CPU", unix.SOL_SOCKET, unix.SO_INCOMING_CPU, Int, 0, 4095, needsValue, Listen, false},
	{"IP_TOS", unix.IPPROTO_IP, unix.IP_TOS, Int, 0, 255, needsValue, all, true},
	{"IP_TRANSPARENT", unix.IPPROTO_IP, unix.IP_TRANSPARENT, Bool, 0, 1, 1, Listen | Server, true},
	{"IP_FREEBIND", unix.IPPROTO_IP, unix.IP_FREEBIND, Bool, 0, 1, 1, Listen | Server, true},
	{"IP_BIND_ADDRESS_NO_PORT", unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, Bool, 0, 1, 1, Server, false},
})

func makeTable(list []Option) map[string]Option {
	m := make(map[string]Option, len(list))
	for _, o := range list {
		m[o.Name] = o
	}
	return m
}

// aliases are names of earlier 3proxy versions.
var aliases = map[string]string{"USE_TCP_FASTOPEN": "TCP_FASTOPEN"}

// Lookup returns the option of that name.
func Lookup(name string) (Option, bool) {
	if other, ok := aliases[name]; ok {
		name = other
	}
	o, ok := table[name]
	return o, ok
}

// Names returns the sorted names of the options that make sense for a role.
func Names(role Role) []string {
	var names []string
	for name, o := range table {
		if o.Allows(role) {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names
}

// Allows tells whether the option makes sense for a role.
func (o Option) Allows(role Role) bool { return o.Roles&role != 0 }

// ForUnix tells whether Unix sockets have the option.
func (o Option) ForUnix() bool {
	return o.Level == unix.SOL_SOCKET && o.Opt != unix.SO_REUSEPORT && o.Opt != unix.SO_INCOMING_CPU
}

// ForUDP tells whether UDP sockets have the option.
func (o Option) ForUDP() bool { return o.Level != unix.IPPROTO_TCP && o.Opt != unix.SO_KEEPALIVE }

// Parse reads the value after NAME=, or, when given is false, takes the value
// of a name that stands alone.
func (o Option) Parse(value string, given bool) (n int, text string, err error) {
	if !given {
		if o.Bare == needsValue {
			return 0, "", fmt.Errorf("a value is missing; expected %s=VALUE with %s", o.Name, o.allowed())
		}
		return o.Bare, "", nil
	}
	if o.Kind == String {
		return 0, value, o.checkText(value)
	}
	u, err := strconv.ParseUint(value, 10, 63)
	signed := value == "" || value[0] == '+'
	padded := len(value) > 1 && value[0] == '0'
	if err != nil || signed || padded || o.check(int(u)) != nil {
		return 0, "", fmt.Errorf("%q: expected %s", value, o.allowed())
	}
	return int(u), "", nil
}

func (o Option) allowed() string {
	switch o.Kind {
	case Bool:
		return "0 or 1"
	case String:
		return fmt.Sprintf("%d to %d letters, digits, '-' or '_'", o.Min, o.Max)
	}
	return fmt.Sprintf("a number from %d to %d", o.Min, o.Max)
}

func (o Option) check(n int) error {
	if n < o.Min || n > o.Max {
		return fmt.Errorf("%d: expected %s", n, o.allowed())
	}
	return nil
}

func (o Option) checkText(s string) error {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	if len(s) < o.Min || len(s) > o.Max || strings.Trim(s, allowed) != "" {
		return fmt.Errorf("%q: expected %s", s, o.allowed())
	}
	return nil
}

// Apply sets the option on a socket: text for a String, else value. The error
// is that of setsockopt(2).
func (o Option) Apply(fd int, value int, text string) error {
	level, opt := o.Level, o.Opt
	if o.Opt == unix.IP_TOS && o.Level == unix.IPPROTO_IP && isIPv6(fd) {
		level, opt = unix.IPPROTO_IPV6, unix.IPV6_TCLASS
	}
	var err error
	if o.Kind == String {
		err = unix.SetsockoptString(fd, level, opt, text)
	} else {
		err = unix.SetsockoptInt(fd, level, opt, value)
	}
	if err != nil {
		return fmt.Errorf("set %s: %w", o.Name, err)
	}
	return nil
}

// isIPv6 tells the family of a socket. The other IP options act on sockets of
// both families; the type of service has one option for each.
func isIPv6(fd int) bool {
	family, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	return err == nil && family == unix.AF_INET6
}

// Apply sets an option by name. An unknown name is an error.
func Apply(fd int, name string, value int, text string) error {
	o, ok := Lookup(name)
	if !ok {
		return fmt.Errorf("unknown socket option %q", name)
	}
	return o.Apply(fd, value, text)
}
