package lab

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The addresses of the lab.
var (
	ClientAddr     = netip.MustParseAddr("10.0.1.2")
	ProxyAddr      = netip.MustParseAddr("10.0.1.1") // towards the client
	ProxyOutAddr   = netip.MustParseAddr("10.0.2.1") // towards the origin
	OriginAddr     = netip.MustParseAddr("10.0.2.2")
	OriginPort     = uint16(8000)
	OriginAddrPort = netip.AddrPortFrom(OriginAddr, OriginPort)
	// OriginTLSAddrPort is where the origin of a TLS scenario is.
	OriginTLSAddrPort = netip.AddrPortFrom(OriginAddr, 8443)
)

// ProxyOutDev is the proxy's device towards the origin.
const ProxyOutDev = "prx1"

const netnsDir = "/run/netns"

// link is one veth pair between two roles.
type link struct {
	from, to         *Role
	fromDev, toDev   string
	fromAddr, toAddr netip.Addr
}

// buildNet makes the namespaces' network: two veth pairs with MTU 1500, the
// proxy's namespace routing between them so that the path without a proxy can
// be measured as well.
func (l *Lab) buildNet() error {
	for _, r := range l.roles() {
		if err := ip("netns", "add", r.ns); err != nil {
			return err
		}
	}
	for _, k := range []link{l.clientLink(), {l.Proxy, l.Origin, ProxyOutDev, "srv0", ProxyOutAddr, OriginAddr}} {
		if err := k.build(); err != nil {
			return err
		}
	}
	for _, r := range l.roles() {
		if err := ip("-n", r.ns, "link", "set", "lo", "up"); err != nil {
			return err
		}
	}
	if err := l.routeClient(); err != nil {
		return err
	}
	return ip("-n", l.Origin.ns, "route", "add", "10.0.1.0/24", "via", ProxyOutAddr.String())
}

// clientLink is the one between clients and proxy.
func (l *Lab) clientLink() link {
	return link{l.Client, l.Proxy, "cli0", "prx0", ClientAddr, ProxyAddr}
}

// routeClient makes the client's way to the origin, past the proxy's processes.
func (l *Lab) routeClient() error {
	return ip("-n", l.Client.ns, "route", "add", "10.0.2.0/24", "via", ProxyAddr.String())
}

func (k link) build() error {
	if err := ip("link", "add", k.fromDev, "netns", k.from.ns, "mtu", "1500", "type", "veth",
		"peer", "name", k.toDev, "netns", k.to.ns, "mtu", "1500"); err != nil {
		return err
	}
	return k.setUp()
}

// setUp gives the devices of a link their addresses.
func (k link) setUp() error {
	if err := setUp(k.from, k.fromDev, k.fromAddr); err != nil {
		return err
	}
	return setUp(k.to, k.toDev, k.toAddr)
}

func setUp(r *Role, dev string, addr netip.Addr) error {
	if err := ip("-n", r.ns, "addr", "add", addr.String()+"/24", "dev", dev); err != nil {
		return err
	}
	if err := ip("-n", r.ns, "link", "set", dev, "up"); err != nil {
		return err
	}
	return steer(r, dev)
}

// steer has the packets that dev receives handled by its role's CPUs: a veth
// or TUN device runs the receiver's work on the sender's CPU, and Receive Packet
// Steering (kernel documentation, networking/scaling) moves it. The file is
// visible only where sysfs is mounted in the namespace, which `ip netns exec`
// does.
func steer(r *Role, dev string) error {
	path := filepath.Join("/sys/class/net", dev, "queues/rx-0/rps_cpus")
	cmd := exec.Command("ip", "netns", "exec", r.ns, "tee", path)
	cmd.Stdin = strings.NewReader(mask(r.cpus))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("steer %s: %w: %s", dev, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return nil
}

// sysctls are set in every namespace: enough ports for a new connection per
// request, and routing for the path without a proxy.
var sysctls = map[string]string{
	"ipv4/ip_local_port_range": "10240 65000",
	"ipv4/tcp_tw_reuse":        "1",
	"ipv4/ip_forward":          "1",
	"core/somaxconn":           "16384",
	"ipv4/tcp_max_syn_backlog": "16384",
}

func (l *Lab) setSysctls() error {
	for _, r := range l.roles() {
		err := r.Do(func() error {
			for name, value := range sysctls {
				if err := os.WriteFile(filepath.Join("/proc/sys/net", name), []byte(value), 0o644); err != nil {
					return fmt.Errorf("set sysctl: %w", err)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func ip(args ...string) error { return command("ip", args...) }

// removeNet ends what still runs in a namespace of ours and removes it.
func removeNet(ns string) error {
	file, err := os.Stat(filepath.Join(netnsDir, ns))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("namespace: %w", err)
	}
	if err := killAll(file); err != nil {
		return err
	}
	if err := ip("netns", "del", ns); err != nil {
		// Two may be removing what a third has left.
		if _, gone := os.Stat(filepath.Join(netnsDir, ns)); errors.Is(gone, os.ErrNotExist) {
			return nil
		}
		return err
	}
	return nil
}

// RemoveStale removes what runs that ended without cleaning up have left.
func RemoveStale() error {
	var errs []error
	each := func(dir string, remove func(name string) error) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return // nothing was ever made there
		}
		for _, e := range entries {
			if o, ok := parseOwner(e.Name()); ok && !o.alive() {
				errs = append(errs, remove(e.Name()))
			}
		}
	}
	each(netnsDir, removeNet)
	each(os.TempDir(), func(name string) error { return os.RemoveAll(filepath.Join(os.TempDir(), name)) })
	return errors.Join(errs...)
}
