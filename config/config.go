// Package config reads the 3proxy.cfg language and turns it into plain data.
//
// Load runs the whole script, reports every error it finds with its position
// and returns a Config that holds no open file, socket or lock. A Config is
// what the supervisor hands to the workers (as JSON), what `3proxyd check
// --dump` prints (after Redacted) and what reload compares.
package config

import (
	"fmt"
	"net/netip"
)

// Pos is a place in a configuration file; Line and Column count from 1,
// Column counts bytes.
type Pos struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
}

// String returns "file:line:column".
func (p Pos) String() string { return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column) }

// Severity tells an error, which stops the load, from a warning.
type Severity string

// The severities.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Diagnostic is one message about the configuration, in words the operator can
// act on.
type Diagnostic struct {
	Pos      Pos      `json:"pos"`
	Severity Severity `json:"severity"`
	Text     string   `json:"text"`
}

// String returns "file:line:column: severity: text".
func (d Diagnostic) String() string { return fmt.Sprintf("%s: %s: %s", d.Pos, d.Severity, d.Text) }

// Config is the effective configuration: everything the daemon does, and
// nothing that depends on the machine it runs on.
type Config struct {
	// Source is the path of the main file, or BuiltinSource.
	Source string `json:"source"`
	// Files lists every file that was read, in order of first use.
	Files []string `json:"files"`

	// Workers is the number of worker processes; 0 means one for each CPU.
	Workers int `json:"workers"`
	// CPUs lists the CPUs workers may be pinned to; empty means every CPU
	// that sched_getaffinity(2) reports.
	CPUs []int `json:"cpus,omitempty"`
	// Control is where the control socket listens.
	Control Control `json:"control"`
	// DrainTimeout is how long, in seconds, sessions may go on after a drain
	// has begun.
	DrainTimeout int `json:"drain_timeout"`
	// Engine is the kernel interface of the workers' event loops, one of
	// Engines; empty means auto.
	Engine string `json:"engine,omitempty"`
	// Rebalance is how often, in seconds, sessions are moved between workers
	// that have become uneven; 0 means never.
	Rebalance int `json:"rebalance,omitempty"`
	// UpgradeTrial is how long, in seconds, a new binary must stay up beside
	// the old one before it takes over; UpgradeOld is how many daemons that
	// have been replaced may still drain.
	UpgradeTrial int `json:"upgrade_trial"`
	UpgradeOld   int `json:"upgrade_old"`
	// SetUID and SetGID are the identity of the workers; nil means unchanged.
	SetUID *Identity `json:"setuid,omitempty"`
	SetGID *Identity `json:"setgid,omitempty"`
	// PIDFile is the path the supervisor writes its process id to; "" is none.
	PIDFile string `json:"pidfile,omitempty"`

	// Monitor lists files whose change makes the daemon reload.
	Monitor []string `json:"monitor,omitempty"`

	Resolver Resolver `json:"resolver"`
	Users    []User   `json:"users,omitempty"`
	// ACLs holds every distinct access list; Service.ACL is an index into it.
	ACLs     [][]Rule  `json:"acls,omitempty"`
	Services []Service `json:"services"`

	// Places says where in the files some of the above was set.
	Places Places `json:"-"`
}

// Places has positions for messages about the machine: of commands that count
// once, such as "control" and "cpus", by their name, and of the log commands by
// the path of the log file.
type Places struct {
	Commands map[string]Pos
	Logs     map[string]Pos
}

// Control describes the control socket. An empty Path means the default of
// the supervisor; Mode is the file mode, 0 meaning 0600; Owner is "user" or
// "user:group", "" meaning unchanged.
type Control struct {
	Path  string `json:"path,omitempty"`
	Mode  uint32 `json:"mode,omitempty"`
	Owner string `json:"owner,omitempty"`
}

// Identity is a user or group as written in the file and the number it
// stands for.
type Identity struct {
	Name string `json:"name"`
	ID   int    `json:"id"`
}

// Resolver is how names are resolved.
type Resolver struct {
	// Servers are asked in order; empty means those of resolv.conf(5).
	Servers []NameServer `json:"servers,omitempty"`
	// CacheSize and CacheSize6 are the numbers of names kept for A and AAAA
	// answers; 0 means the default (DefaultNameCache).
	CacheSize  int `json:"cache_size,omitempty"`
	CacheSize6 int `json:"cache_size6,omitempty"`
	// Static holds the nsrecord lines; an unspecified address (0.0.0.0) means
	// that the name never resolves. Names are lower case without final dot.
	Static map[string][]netip.Addr `json:"static,omitempty"`
}

// DefaultNameCache is the number of names cached when nscache is not given.
const DefaultNameCache = 65536

// NameServer is one nserver line.
type NameServer struct {
	Addr netip.AddrPort `json:"addr"`
	TCP  bool           `json:"tcp,omitempty"`
}

// User is one entry of the users command. Type is "CL" (clear text) for now.
type User struct {
	Name   string `json:"name"`
	Type   string `json:"type"`
	Secret string `json:"secret"`
}

// Kind is the kind of a service, spelled as its command.
type Kind string

// The kinds of service.
const (
	Proxy Kind = "proxy"
	Socks Kind = "socks"
	TCPPM Kind = "tcppm"
	TLSPR Kind = "tlspr"
	Auto  Kind = "auto"
	UDPPM Kind = "udppm"
	DNSPR Kind = "dnspr"
)

// AuthMethod is one word of the auth command.
type AuthMethod string

// The authentication methods.
const (
	AuthNone     AuthMethod = "none"
	AuthIPOnly   AuthMethod = "iponly"
	AuthUserOnly AuthMethod = "useronly"
	AuthStrong   AuthMethod = "strong"
)

// Service is one service line with the state captured at that line.
type Service struct {
	// ID names the service in stats and over reloads: kind and listening
	// address, for example "proxy@127.0.0.1:3128". It is unique.
	ID   string `json:"id"`
	Kind Kind   `json:"kind"`
	Pos  Pos    `json:"pos"`

	Listen Endpoint `json:"listen"`
	// Target is where a tcppm or udppm service connects to.
	Target *Endpoint `json:"target,omitempty"`
	// External4 and External6 are the source addresses of outgoing
	// connections; the zero Addr means that the kernel chooses. When only one
	// family has an address, only that family is used (R27).
	External4 netip.Addr `json:"external4"`
	External6 netip.Addr `json:"external6"`
	// Families says which addresses of a name are connected to, and in which
	// order; empty means FamiliesPrefer4.
	Families Families `json:"families,omitempty"`

	Auth []AuthMethod `json:"auth"`
	// ACL is an index into Config.ACLs, or -1 for no list (everything allowed).
	ACL int `json:"acl"`

	// MaxConn is the limit of open connections over all workers; 0 means what
	// the descriptors allow, at most DefaultMaxConn.
	MaxConn int `json:"maxconn"`
	// MaxBody bounds the body of an HTTP request in bytes; 0 means that nothing
	// does.
	MaxBody int64 `json:"max_body,omitempty"`
	// Force has a reload check the sessions of the service against its new
	// rules, and end those that are not allowed any more.
	Force bool `json:"force,omitempty"`
	// Backlog is the listen(2) backlog; 0 means the kernel's somaxconn.
	Backlog  int      `json:"backlog"`
	Timeouts Timeouts `json:"timeouts"`

	Log       Log    `json:"log"`
	LogFormat string `json:"logformat"`

	Splice Splice `json:"splice"`
	Grace  Grace  `json:"grace,omitzero"`
	// BufferSize is the size in bytes of one read when copying; 0 means the
	// default of the relay.
	BufferSize int `json:"buffer_size,omitempty"`
	// TargetPort (-P) is the port tlspr connects to; a ClientHello has none.
	TargetPort uint16 `json:"target_port,omitempty"`
	// TLSCheck (-c) is what tlspr demands: 0 nothing, 1 a ClientHello, 2 a
	// ServerHello as well.
	TLSCheck int `json:"tls_check,omitempty"`
	// ProxyHeader (-H) has clients begin with a PROXY protocol header; nil means
	// that there is none.
	ProxyHeader *ProxyHeader `json:"proxy_header,omitempty"`
	// SendHeader (-Hout1, -Hout2) is the version of the PROXY protocol header
	// that servers are sent, 0 for none.
	SendHeader int `json:"send_header,omitempty"`
	// SingleDatagram (-s of udppm) ends a session after its first answer.
	SingleDatagram bool `json:"single_datagram,omitempty"`
	// CloseBoth (-C) ends both directions of a relay when one ends.
	CloseBoth bool `json:"close_both,omitempty"`

	// Anonymity (-a) is of the HTTP proxy, AskUser (-u) of SOCKS as well.
	Anonymity Anonymity `json:"anonymity,omitempty"`
	AskUser   AskUser   `json:"ask_user,omitempty"`
	// AdvertisedInternal is told to SOCKS clients instead of the address that
	// takes their datagrams (-Ni), AdvertisedExternal instead of the source
	// address of CONNECT and the listening address of BIND (-Ne).
	AdvertisedInternal Advertised `json:"advertised_internal,omitzero"`
	AdvertisedExternal Advertised `json:"advertised_external,omitzero"`
	// UDPDestinations is what a new destination within a UDP association of
	// SOCKS leads to (-U).
	UDPDestinations UDPDestinations `json:"udp_destinations,omitempty"`

	ListenOptions []SockOpt `json:"listen_options,omitempty"`
	ClientOptions []SockOpt `json:"client_options,omitempty"`
	ServerOptions []SockOpt `json:"server_options,omitempty"`
}

// Families is which address families a service connects over, spelled as its
// option.
type Families string

// The families: one only, or both with those that are tried first.
const (
	FamiliesOnly4   Families = "4"
	FamiliesOnly6   Families = "6"
	FamiliesPrefer4 Families = "46"
	FamiliesPrefer6 Families = "64"
)

// Anonymity is what an HTTP proxy tells servers about clients.
type Anonymity string

// What is told.
const (
	TellClient        Anonymity = ""                // Forwarded and Via
	HideClient        Anonymity = "hide"            // -a: nothing
	InventClient      Anonymity = "invent"          // -a1: Via, and X-Forwarded-For of a random address
	TellXForwardedFor Anonymity = "x_forwarded_for" // -a2: X-Forwarded-For and Via
)

// AskUser is when a client is asked for user and password.
type AskUser string

// When it is asked.
const (
	AskWhenNeeded AskUser = ""       // when the request is refused without them
	AskNever      AskUser = "never"  // -u
	AskAlways     AskUser = "always" // -u2
)

// ProxyHeader says whose PROXY protocol headers are believed. From are sorted
// ranges that do not overlap; without any they are those of this host: loopback
// addresses. Peers of Unix sockets always are.
type ProxyHeader struct {
	From []IPRange `json:"from,omitempty"`
}

// DefaultMaxConn bounds a service whose maxconn is not set.
const DefaultMaxConn = 100_000

// MaxServices is the number of service lines a configuration may hold; the
// shared counters have that many places.
const MaxServices = 4096

// Network is what kind of socket an Endpoint has.
type Network string

// The networks. Stream is TCP, or a Unix stream socket.
const (
	Stream Network = ""
	UDP    Network = "udp"
)

// Endpoint is a TCP or UDP address or a Unix socket. Unix is a path, or "@name"
// for an abstract socket; when it is set the rest is unused. Host is a name
// still to be resolved (targets only); when it is "" Addr holds the address.
// Port is always set for TCP and UDP.
//
// Systemd names sockets of the service manager (FileDescriptorName=,
// systemd.socket(5)), of listening addresses only. The rest is empty in the
// configuration, and is where the sockets are bound once they are known.
type Endpoint struct {
	Network Network    `json:"network,omitempty"`
	Systemd string     `json:"systemd,omitempty"`
	Unix    string     `json:"unix,omitempty"`
	Host    string     `json:"host,omitempty"`
	Addr    netip.Addr `json:"addr"`
	Port    uint16     `json:"port,omitempty"`
}

// Key identifies the address: services with the same one have the same sockets.
func (e Endpoint) Key() string {
	switch {
	case e.Systemd != "" && e.Network == UDP:
		return "systemd-udp:" + e.Systemd
	case e.Systemd != "":
		return "systemd:" + e.Systemd
	case e.Unix != "":
		return "unix:" + e.Unix
	case e.Network == UDP:
		return "udp:" + e.String()
	}
	return "tcp:" + e.String()
}

// Timeouts are the values of the timeouts command, in seconds.
type Timeouts struct {
	ByteShort       int `json:"byte_short"`
	ByteLong        int `json:"byte_long"`
	StringShort     int `json:"string_short"`
	StringLong      int `json:"string_long"`
	ConnectionShort int `json:"connection_short"`
	ConnectionLong  int `json:"connection_long"`
	DNS             int `json:"dns"`
	Chain           int `json:"chain"`
	Connect         int `json:"connect"`
	ConnectBack     int `json:"connect_back"`
	// Linger bounds the silence of a session after one side has finished.
	Linger int `json:"linger"`
	// LingerGiven says that the file sets Linger. Otherwise a server gets
	// StringLong to answer a client that has finished sending.
	LingerGiven bool `json:"linger_given,omitempty"`
}

// DefaultTimeouts are those of 3proxy.
var DefaultTimeouts = Timeouts{1, 5, 30, 60, 180, 1800, 15, 60, 15, 5, 5, false}

// LogKind tells where a service's log goes.
type LogKind string

// The kinds of log. Without a log command nothing is logged (LogNone); a log
// command without a file is LogStdout.
const (
	LogStdout LogKind = "stdout"
	LogFile   LogKind = "file"
	LogNone   LogKind = "none"
)

// Log is the log target of a service. Rotate is "" or one of the letters
// c H D W M Y: a new file per minute, hour, day, week, month or year.
type Log struct {
	Kind   LogKind `json:"kind"`
	Path   string  `json:"path,omitempty"`
	Rotate string  `json:"rotate,omitempty"`
}

// DefaultLogFormat is used when logformat is not given.
const DefaultLogFormat = "G%y%m%d%H%M%S.%. %p %E %U %C:%c %R:%r %O %I %h %T"

// Splice says when a direction is moved by splice(2) instead of copied.
type Splice struct {
	// Mode is 0 off, 1 downloads (server to client), 2 uploads, 3 both;
	// 5, 6 and 7 are the same only where it pays. The default is 7.
	Mode int `json:"mode"`
	// Min is the size in bytes of a read that counts as bulk, Streak how many
	// in a row switch to splicing, Small the size under which more than
	// Streak splices in a row switch back.
	Min    int `json:"min"`
	Streak int `json:"streak"`
	Small  int `json:"small"`
}

// Grace lets a direction that brings many small pieces rest before it is read
// again; the zero value never does.
type Grace struct {
	// With Reads reads within a second that bring less than Traffic bytes on
	// average the next waits for DelayMS milliseconds.
	Traffic int   `json:"traffic"`
	Reads   int   `json:"reads"`
	DelayMS int64 `json:"delay_ms"`
}

// DefaultSplice is what a service without -s uses.
var DefaultSplice = Splice{Mode: 7, Min: 16384, Streak: 2, Small: 4096}

// Advertised are addresses that clients are told instead of our own, because of
// a translation (NAT) in between; the zero Addr is none.
type Advertised struct {
	V4 netip.Addr `json:"v4"`
	V6 netip.Addr `json:"v6"`
}

// UDPDestinations is a set of what a new destination within a UDP association
// leads to. The first destination always leads to both.
type UDPDestinations uint8

// The members of UDPDestinations.
const (
	// UDPLog writes a line of the access log for each destination.
	UDPLog UDPDestinations = 1 << iota
	// UDPAuthorize asks the access list about each destination.
	UDPAuthorize
)

// SockOpt is one socket option of -ol, -oc or -os. Text is the value of an
// option that takes a string (TCP_CONGESTION), else Value is.
type SockOpt struct {
	Name  string `json:"name"`
	Value int    `json:"value"`
	Text  string `json:"text,omitempty"`
}

// Rule is one allow or deny line. An empty list matches anything.
type Rule struct {
	Pos   Pos  `json:"pos"`
	Allow bool `json:"allow"`

	Users   []string  `json:"users,omitempty"`
	Sources []IPRange `json:"sources,omitempty"`
	// Targets and TargetHosts together form the target list: it is empty, and
	// matches anything, only when both are.
	Targets     []IPRange     `json:"targets,omitempty"`
	TargetHosts []HostPattern `json:"target_hosts,omitempty"`
	Ports       []PortRange   `json:"ports,omitempty"`
	Operations  Operations    `json:"operations,omitempty"`
	// Weekdays has bit 0 for Sunday to bit 6 for Saturday; 0 is any day.
	Weekdays uint8       `json:"weekdays,omitempty"`
	Times    []TimeRange `json:"times,omitempty"`
}

// IPRange is an inclusive range of addresses of one family. An address, a
// CIDR block and an A-B range all become one.
type IPRange struct {
	From netip.Addr `json:"from"`
	To   netip.Addr `json:"to"`
}

// HostPattern is a host name, lower case and without final dot, with the
// places where "*" stood.
type HostPattern struct {
	Name      string `json:"name"`
	AnyPrefix bool   `json:"any_prefix,omitempty"`
	AnySuffix bool   `json:"any_suffix,omitempty"`
}

// PortRange is an inclusive range of ports.
type PortRange struct {
	From uint16 `json:"from"`
	To   uint16 `json:"to"`
}

// TimeRange is a half-open range of seconds since local midnight.
type TimeRange struct {
	From int `json:"from"`
	To   int `json:"to"`
}

// Operations is a set of operations; 0 stands for any.
type Operations uint32

// The operations of the access lists.
const (
	OpConnect Operations = 1 << iota
	OpBind
	OpUDPAssoc
	OpICMPAssoc
	OpHTTPGet
	OpHTTPPut
	OpHTTPPost
	OpHTTPHead
	OpHTTPConnect
	OpHTTPOther
	OpFTPGet
	OpFTPPut
	OpFTPList
	OpFTPData
	OpAdmin
	OpDNSResolve

	OpHTTP = OpHTTPGet | OpHTTPPut | OpHTTPPost | OpHTTPHead | OpHTTPOther
	OpFTP  = OpFTPGet | OpFTPPut | OpFTPList | OpFTPData
)
