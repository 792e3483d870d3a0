package resolver

import (
	"bytes"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"3proxyd/internal/ipaddr"
)

const (
	// checkEvery is how often the files are looked at for changes.
	checkEvery = 5 * time.Second
	// The files are read up to these sizes in bytes.
	maxResolvConf = 64 << 10
	maxHosts      = 32 << 20
	// Bounds of resolv.conf(5); MAXNS is 3.
	maxServers  = 3
	maxSearch   = 32
	maxNdots    = 15
	maxAttempts = 5
	maxSeconds  = 30
)

// system is the configuration of the machine. A file that cannot be read
// leaves what was known before in force.
type system struct {
	timeout time.Duration
	mu      sync.Mutex
	next    time.Time
	conf    watched
	hosts   watched
	plan    *plan
	names   map[string][]netip.Addr
}

func newSystem(conf, hosts string, timeout time.Duration) *system {
	return &system{
		timeout: timeout,
		conf:    watched{path: conf, limit: maxResolvConf},
		hosts:   watched{path: hosts, limit: maxHosts},
		plan:    parseResolvConf(nil, timeout),
	}
}

// current returns the servers and the names of the hosts file, after reading
// the files again if it is time to and they have changed.
func (s *system) current(now time.Time) (*plan, map[string][]netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.next) {
		return s.plan, s.names
	}
	s.next = now.Add(checkEvery)
	if text, changed := s.conf.read(); changed {
		s.plan = parseResolvConf(text, s.timeout)
	}
	if text, changed := s.hosts.read(); changed {
		s.names = parseHosts(text)
	}
	return s.plan, s.names
}

// watched is a file that is read when it has changed.
type watched struct {
	path  string
	limit int64
	last  os.FileInfo
}

func (w *watched) read() (text []byte, changed bool) {
	file, err := os.Open(w.path)
	if err != nil {
		return nil, false
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || w.last != nil && os.SameFile(info, w.last) &&
		info.Size() == w.last.Size() && info.ModTime().Equal(w.last.ModTime()) {
		return nil, false
	}
	text, err = io.ReadAll(io.LimitReader(file, w.limit))
	if err != nil {
		return nil, false
	}
	w.last = info
	return text, true
}

// parseResolvConf reads resolv.conf(5). Without a nameserver line the server is
// on this host; timeout bounds that of the file.
func parseResolvConf(text []byte, timeout time.Duration) *plan {
	p := &plan{timeout: min(5*time.Second, timeout), attempts: 2, ndots: 1, search: hostDomain()}
	tcp := false
	for line := range bytes.Lines(text) {
		fields := strings.Fields(string(line))
		if len(fields) < 2 || strings.HasPrefix(fields[0], "#") || strings.HasPrefix(fields[0], ";") {
			continue
		}
		switch fields[0] {
		case "nameserver":
			if a, err := netip.ParseAddr(fields[1]); err == nil && len(p.servers) < maxServers {
				p.servers = append(p.servers, &server{addr: netip.AddrPortFrom(a, 53)})
			}
		case "domain":
			p.search = domains(fields[1:2])
		case "search":
			p.search = domains(fields[1:])
		case "options":
			tcp = p.options(fields[1:], timeout) || tcp
		}
	}
	if len(p.servers) == 0 {
		p.servers = []*server{{addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 53)}}
	}
	for _, s := range p.servers {
		s.tcp = tcp
	}
	return p
}

// options applies the options that matter here and returns whether use-vc is
// among them.
func (p *plan) options(words []string, timeout time.Duration) (tcp bool) {
	for _, word := range words {
		name, value, _ := strings.Cut(word, ":")
		n, err := strconv.Atoi(value)
		switch {
		case name == "use-vc":
			tcp = true
		case name == "rotate":
			p.rotate = true
		case err != nil:
		case name == "ndots":
			p.ndots = max(0, min(n, maxNdots))
		case name == "attempts":
			p.attempts = max(1, min(n, maxAttempts))
		case name == "timeout":
			p.timeout = min(time.Duration(max(1, min(n, maxSeconds)))*time.Second, timeout)
		}
	}
	return tcp
}

func domains(words []string) []string {
	var list []string
	for _, w := range words {
		if name, _, ok := hostName(w); ok && len(list) < maxSearch {
			list = append(list, name)
		}
	}
	return list
}

// hostDomain is the search list of a machine without one: the domain of its
// own name.
func hostDomain() []string {
	name, err := os.Hostname()
	if err != nil {
		return nil
	}
	_, domain, _ := strings.Cut(name, ".")
	return domains([]string{domain})
}

// parseHosts reads hosts(5).
func parseHosts(text []byte) map[string][]netip.Addr {
	names := map[string][]netip.Addr{}
	for line := range bytes.Lines(text) {
		line, _, _ = bytes.Cut(line, []byte{'#'})
		fields := bytes.Fields(line)
		if len(fields) < 2 {
			continue
		}
		a, err := netip.ParseAddr(string(fields[0]))
		if err != nil || a.Zone() != "" {
			continue
		}
		for _, f := range fields[1:] {
			host, _, ok := hostName(string(f))
			if ok && len(names[host]) < MaxAddrs {
				names[host] = append(names[host], ipaddr.Canonical(a))
			}
		}
	}
	return names
}
