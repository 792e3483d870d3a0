package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"3proxyd/config"
	"3proxyd/ipc"
	"3proxyd/supervisor"
)

// preflight finds what the start would refuse on this machine, or would not
// get from it, without opening or changing anything.
type preflight struct {
	cfg      *config.Config
	host     host
	warnings []config.Diagnostic
	errors   []config.Diagnostic
}

// host is the machine as far as the checks need it.
type host struct {
	euid, egid int
	// control is where the control socket is when the configuration does not
	// say so.
	control string
	// congestion lists the congestion control algorithms that sockets may
	// use, addrs the addresses of the interfaces; nil when they are not known.
	congestion []string
	addrs      []netip.Addr
	// anyAddr says that sockets may bind to addresses the host does not have.
	anyAddr bool
}

func thisHost() host {
	h := host{euid: os.Geteuid(), egid: os.Getegid()}
	h.control = ipc.DefaultControlPath(h.euid, os.Getenv("XDG_RUNTIME_DIR"))
	if data, err := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control"); err == nil {
		h.congestion = strings.Fields(string(data))
	}
	if data, err := os.ReadFile("/proc/sys/net/ipv4/ip_nonlocal_bind"); err == nil {
		h.anyAddr = strings.TrimSpace(string(data)) == "1"
	}
	nets, _ := net.InterfaceAddrs()
	for _, n := range nets {
		if p, err := netip.ParsePrefix(n.String()); err == nil {
			h.addrs = append(h.addrs, p.Addr().Unmap())
		}
	}
	return h
}

// examine runs every check.
func examine(cfg *config.Config, h host) preflight {
	p := preflight{cfg: cfg, host: h}
	p.cpus()
	p.logs()
	p.pidFile()
	p.control()
	p.identity()
	for i := range cfg.Services {
		p.service(&cfg.Services[i])
	}
	return p
}

// examined returns load with the checks of the machine, whose errors refuse a
// configuration as well.
func examined(load func() (*config.Config, []config.Diagnostic)) func() (*config.Config, []config.Diagnostic) {
	return func() (*config.Config, []config.Diagnostic) {
		cfg, diags := load()
		if cfg == nil {
			return nil, diags
		}
		p := examine(cfg, thisHost())
		diags = slices.Concat(diags, p.warnings, p.errors)
		if len(p.errors) > 0 {
			return nil, diags
		}
		return cfg, diags
	}
}

func (p *preflight) errorf(pos config.Pos, format string, args ...any) {
	p.errors = append(p.errors, config.Diagnostic{Pos: pos, Severity: config.Error, Text: fmt.Sprintf(format, args...)})
}

func (p *preflight) warnf(pos config.Pos, format string, args ...any) {
	p.warnings = append(p.warnings, config.Diagnostic{Pos: pos, Severity: config.Warning, Text: fmt.Sprintf(format, args...)})
}

// at returns where a command stands, or the beginning of the main file.
func (p *preflight) at(command string) config.Pos {
	if pos, ok := p.cfg.Places.Commands[command]; ok {
		return pos
	}
	return config.Pos{File: p.cfg.Source, Line: 1, Column: 1}
}

func (p *preflight) cpus() {
	cpus, err := supervisor.WorkerCPUs(p.cfg)
	if err != nil {
		p.errorf(p.at("cpus"), "%v", err)
		return
	}
	distinct := slices.Compact(slices.Sorted(slices.Values(cpus)))
	if len(cpus) > len(distinct) {
		p.warnf(p.at("workers"), "workers: %d workers share %s; more workers than CPUs slow each other down",
			len(cpus), plural(len(distinct), "CPU"))
	}
}

func (p *preflight) logs() {
	seen := map[string]bool{}
	for i := range p.cfg.Services {
		s := &p.cfg.Services[i]
		if s.Log.Kind != config.LogFile || seen[s.Log.Path] {
			continue
		}
		seen[s.Log.Path] = true
		if err := checkFilePlace(s.Log.Path); err != nil {
			p.errorf(p.logPos(s), "log: %v", err)
		}
	}
}

func (p *preflight) logPos(s *config.Service) config.Pos {
	if pos, ok := p.cfg.Places.Logs[s.Log.Path]; ok {
		return pos
	}
	return s.Pos
}

// checkFilePlace says why there can be no file at path: a directory is there,
// or there is no directory for it.
func checkFilePlace(path string) error {
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		return fmt.Errorf("%q is a directory", path)
	}
	if err == nil {
		return nil
	}
	dir := filepath.Dir(path)
	switch info, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%q: there is no directory %q", path, dir)
	case err == nil && !info.IsDir():
		return fmt.Errorf("%q: %q is not a directory", path, dir)
	}
	return nil
}

func (p *preflight) pidFile() {
	if p.cfg.PIDFile == "" {
		return
	}
	if err := checkFilePlace(p.cfg.PIDFile); err != nil {
		p.errorf(p.at("pidfile"), "pidfile: %v", err)
	}
}

// control checks the path of the control socket. The directory of the default
// path is made at the start.
func (p *preflight) control() {
	path := p.cfg.Control.Path
	if path != "" {
		if err := checkFilePlace(path); err != nil {
			p.errorf(p.at("control"), "control: %v", err)
			return
		}
	}
	if path == "" {
		path = p.host.control
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != fs.ModeSocket {
		p.errorf(p.at("control"), "control: %q exists and is not a socket", path)
	}
	for i := range p.cfg.Services {
		s := &p.cfg.Services[i]
		if unix := s.Listen.Unix; unix != "" && filepath.Clean(unix) == filepath.Clean(path) {
			p.errorf(s.Pos, "%s: unix:%s is the control socket", s.Kind, unix)
		}
	}
}

// identity: only root can give workers another identity than its own.
func (p *preflight) identity() {
	if p.host.euid == 0 {
		return
	}
	if id := p.cfg.SetUID; id != nil && id.ID != p.host.euid {
		p.warnf(p.at("setuid"), "setuid: the start needs root")
	}
	if id := p.cfg.SetGID; id != nil && id.ID != p.host.egid {
		p.warnf(p.at("setgid"), "setgid: the start needs root")
	}
}

func (p *preflight) service(s *config.Service) {
	p.unixListener(s)
	p.loop(s)
	p.address(s, s.Listen.Addr, "the listening address", s.ListenOptions)
	p.address(s, s.External4, "the external address", s.ServerOptions)
	p.address(s, s.External6, "the external address", s.ServerOptions)
	p.congestion(s, "-ol", s.ListenOptions)
	p.congestion(s, "-oc", s.ClientOptions)
	p.congestion(s, "-os", s.ServerOptions)
}

func (p *preflight) unixListener(s *config.Service) {
	path := s.Listen.Unix
	if path == "" || strings.HasPrefix(path, "@") {
		return
	}
	if err := checkFilePlace(path); err != nil {
		p.errorf(s.Pos, "%s: unix: %v", s.Kind, err)
		return
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != fs.ModeSocket {
		p.errorf(s.Pos, "%s: unix: %q exists and is not a socket", s.Kind, path)
	}
}

// loop refuses a port mapping that listens on every address of the host and
// leads to one of them, at its own port.
func (p *preflight) loop(s *config.Service) {
	t := s.Target
	if t == nil || t.Port != s.Listen.Port || !s.Listen.Addr.IsUnspecified() || s.Listen.Addr.Is4() != t.Addr.Is4() {
		return
	}
	if slices.Contains(p.host.addrs, t.Addr) {
		p.errorf(s.Pos, "%s: it would connect to itself: %s is an address of this host, and it listens on all of them", s.Kind, t)
	}
}

// address warns of an address that no interface has now; it may come later.
func (p *preflight) address(s *config.Service, a netip.Addr, what string, opts []config.SockOpt) {
	if !a.IsValid() || a.IsUnspecified() || a.Is4() && a.IsLoopback() || len(p.host.addrs) == 0 {
		return
	}
	bindsAnything := func(o config.SockOpt) bool {
		return (o.Name == "IP_FREEBIND" || o.Name == "IP_TRANSPARENT") && o.Value != 0
	}
	if a.Is4() && p.host.anyAddr || slices.ContainsFunc(opts, bindsAnything) || slices.Contains(p.host.addrs, a) {
		return
	}
	p.warnf(s.Pos, "%s: %s %s is not an address of this host", s.Kind, what, a)
}

func (p *preflight) congestion(s *config.Service, letter string, opts []config.SockOpt) {
	for _, o := range opts {
		if o.Name != "TCP_CONGESTION" || p.host.congestion == nil || slices.Contains(p.host.congestion, o.Text) {
			continue
		}
		p.warnf(s.Pos, "%s: %sTCP_CONGESTION=%s: the kernel does not have this algorithm loaded; it has %s",
			s.Kind, letter, o.Text, strings.Join(p.host.congestion, ", "))
	}
}

// openable returns cfg without the logs that have been found impossible.
func (p *preflight) openable() *config.Config {
	out := *p.cfg
	out.Services = slices.Clone(p.cfg.Services)
	for i := range out.Services {
		s := &out.Services[i]
		if s.Log.Kind == config.LogFile && checkFilePlace(s.Log.Path) != nil {
			s.Log = config.Log{Kind: config.LogNone}
		}
	}
	return &out
}

// plural returns "1 THING" or "N THINGs".
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
