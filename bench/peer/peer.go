// Package peer knows the proxies that are measured: where their binaries are,
// which modes they have and how they are configured. Each has a file of its
// own. All run one worker or thread, log nothing and take connections on the
// ports of Port.
package peer

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"3proxyd/bench/scenario"
)

// Peer is a kind of proxy.
type Peer struct {
	// Name is what users call it. A label such as "3proxyd-old" means the peer
	// 3proxyd with a binary or options of its own.
	Name  string
	Modes []scenario.Mode
	// Group is how it moves bulk data as configured here.
	Group Group
	// Binary is looked up in the path and the sbin directories; "" means that
	// there is no process at all.
	Binary string
	// Needs is a text that the binary holds if it was built with what Configure
	// asks for; "" if every binary will do.
	Needs string
	// Packages are the Debian packages that hold it.
	Packages []string
	// Version are the arguments that make it print its version.
	Version []string
	// VersionIn finds the version in what Version printed or, without Version,
	// in the binary itself. Without VersionIn the first line printed is taken.
	VersionIn *regexp.Regexp
	// Configure writes the configuration and returns the arguments that run
	// the proxy in the foreground.
	Configure func(Env) ([]string, error)
}

// Group tells proxies apart by how they move bulk data.
type Group string

// The groups.
const (
	None   Group = ""       // no process touches the data
	Copy   Group = "copy"   // through user space
	Splice Group = "splice" // by splice(2), at least where the proxy thinks it pays
)

// Env is what a configuration is made from.
type Env struct {
	// Dir is an empty directory, readable for every user, that the proxy may
	// not be able to write to.
	Dir string
	// Listen is where clients connect to; Out is the address towards Origin.
	Listen netip.Addr
	Out    netip.Addr
	Origin netip.AddrPort
	// OriginTLS is where the origin speaks TLS.
	OriginTLS netip.AddrPort
	CPUs      []int
	// Files is the limit of open files the proxy starts with.
	Files int
	// Options are words from the command line for the peer's services, Lines
	// are whole lines for its configuration. Only some peers take them.
	Options string
	Lines   []string
}

// Port returns the port on which a peer serves a mode.
func Port(m scenario.Mode) uint16 {
	switch m {
	case scenario.Socks:
		return 1080
	case scenario.HTTP, scenario.Connect:
		return 3128
	case scenario.Term:
		return 9443
	case scenario.Init:
		return 9080
	}
	return 9000
}

// All lists the peers.
var All = []*Peer{
	daemon, nginx, haproxy, haproxySplice, haproxyAuto, dante, squid, tinyproxy, stunnel, envoy, threeProxy, threeProxySplice, direct,
}

// Find returns the peer of a label: NAME or NAME-ANYTHING.
func Find(label string) (*Peer, error) {
	var best *Peer
	for _, p := range All {
		matches := label == p.Name || strings.HasPrefix(label, p.Name+"-")
		if matches && (best == nil || len(p.Name) > len(best.Name)) {
			best = p
		}
	}
	if best == nil {
		return nil, fmt.Errorf("proxy %q is not known; known are %s", label, strings.Join(Names(), ", "))
	}
	return best, nil
}

// GroupWith returns the group of a proxy that runs with the given options of the
// 3proxy.cfg language: -s0 turns splicing off, -s and -sMODE turn it on.
func (p *Peer) GroupWith(options string) Group {
	group := p.Group
	for _, word := range strings.Fields(options) {
		mode, ok := strings.CutPrefix(word, "-s")
		switch {
		case !ok:
		case mode == "0":
			group = Copy
		default:
			group = Splice
		}
	}
	return group
}

// Names lists the names of all peers.
func Names() []string {
	var names []string
	for _, p := range All {
		names = append(names, p.Name)
	}
	return names
}

// Serves tells whether the peer has the mode.
func (p *Peer) Serves(m scenario.Mode) bool {
	for _, have := range p.Modes {
		if have == m {
			return true
		}
	}
	return false
}

// Lookup returns the path of the peer's binary.
func (p *Peer) Lookup() (string, error) {
	if path, err := exec.LookPath(p.Binary); err == nil {
		return filepath.Abs(path)
	}
	for _, dir := range []string{"/usr/local/sbin", "/usr/sbin", "/sbin"} {
		path := filepath.Join(dir, p.Binary)
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not installed", p.Binary)
}

// write puts a configuration file into the directory and returns its path.
func (e Env) write(name, text string) (string, error) {
	path := filepath.Join(e.Dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return "", fmt.Errorf("write configuration: %w", err)
	}
	return path, nil
}

// at returns the listening address of a mode.
func (e Env) at(m scenario.Mode) string {
	return netip.AddrPortFrom(e.Listen, Port(m)).String()
}
