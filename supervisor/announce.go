package supervisor

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"text/tabwriter"

	"3proxyd/config"
)

// announce says on standard output what runs where, and on standard error
// what the operator should know.
func (d *daemon) announce() {
	current := d.inForce()
	var b strings.Builder
	fmt.Fprintf(&b, "3proxyd %s, configuration: %s\n", d.options.Version, current.cfg.Source)
	table := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	for i := range current.cfg.Services {
		s := &current.cfg.Services[i]
		fmt.Fprintf(table, "  %s\t%s\t%s\tmaxconn %d\n", kindText(s), listenText(s), targetText(s), current.limits.MaxConn[i])
	}
	_ = table.Flush()
	fmt.Fprintf(&b, "  workers: %s\n", d.workersText())
	fmt.Fprintf(&b, "  control socket: %s\n", d.control.path)
	if line := tryLine(current.cfg); line != "" {
		fmt.Fprintf(&b, "Try: %s\n", line)
	}
	fmt.Fprint(d.options.Stdout, b.String())
	for _, w := range d.warnings(current) {
		d.logf("warning: %s", w)
	}
}

// listenText is where a service listens; sockets of socket units are shown with
// the address of the first.
func listenText(s *config.Service) string {
	if s.Listen.Systemd == "" {
		return s.Listen.String()
	}
	bound := s.Listen
	bound.Systemd = ""
	return fmt.Sprintf("%s (%s)", s.Listen.String(), bound.String())
}

func targetText(s *config.Service) string {
	if s.Target == nil {
		return ""
	}
	return "to " + s.Target.String()
}

func (d *daemon) workersText() string {
	var cpus []string
	for _, cpu := range d.inForce().cpus {
		cpus = append(cpus, fmt.Sprint(cpu))
	}
	noun := "CPUs"
	if len(cpus) == 1 {
		noun = "CPU"
	}
	return fmt.Sprintf("%d, on %s %s", len(cpus), noun, strings.Join(cpus, " "))
}

// warnings are those of a generation's configuration and limits.
func (d *daemon) warnings(s *snapshot) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var texts []string
	for _, w := range s.warnings {
		texts = append(texts, fmt.Sprintf("%s: %s", w.Pos, w.Text))
	}
	return append(texts, s.limits.Warnings...)
}

// kindText is the kind of a service as its counters show it.
func kindText(s *config.Service) string {
	kind, _, _ := strings.Cut(s.ID, "@")
	return kind
}

// tryLine is a command that uses the first service curl can use.
func tryLine(cfg *config.Config) string {
	for _, scheme := range []struct {
		kind config.Kind
		name string
	}{{config.Proxy, "http"}, {config.Auto, "http"}, {config.Socks, "socks5h"}} {
		for _, s := range cfg.Services {
			if s.Kind == scheme.kind && s.Listen.Unix == "" && s.ProxyHeader == nil {
				return fmt.Sprintf("curl -x %s://%s %shttp://example.com/", scheme.name, reachable(s.Listen), login(s))
			}
		}
	}
	return ""
}

// login is curl's option for a service that lets nobody in without a name.
func login(s config.Service) string {
	for _, m := range s.Auth {
		if m == config.AuthNone || m == config.AuthIPOnly {
			return ""
		}
	}
	return "-U USER:PASSWORD "
}

// reachable writes an address a client on this host can connect to.
func reachable(e config.Endpoint) string {
	addr := e.Addr.Unmap()
	switch addr {
	case netip.IPv4Unspecified():
		addr = netip.MustParseAddr("127.0.0.1")
	case netip.IPv6Unspecified():
		addr = netip.IPv6Loopback()
	}
	return net.JoinHostPort(addr.String(), fmt.Sprint(e.Port))
}
