package lab

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"3proxyd/bench/wire"
)

// Link describes the network between the clients and the proxy. The zero value
// is the veth pair as it is.
type Link struct {
	// Rate is in bits a second, for each connection and each way.
	Rate int64
	// Delay is one way's.
	Delay time.Duration
	// Loss is the share of packets lost each way, 0 to 1.
	Loss float64
}

// Limits of what ParseLink accepts.
const (
	minLinkRate  = 8_000
	maxLinkRate  = 100_000_000_000
	maxLinkDelay = 10 * time.Second
)

// ParseLink reads RATE,DELAY[,LOSS], for example "20mbit,5ms,0.5%": RATE with
// the unit kbit, mbit or gbit, DELAY as time.ParseDuration reads it.
func ParseLink(text string) (Link, error) {
	var l Link
	words := strings.Split(text, ",")
	if len(words) < 2 || len(words) > 3 {
		return l, fmt.Errorf("link %q is not RATE,DELAY[,LOSS]", text)
	}
	var err error
	if l.Rate, err = parseRate(words[0]); err != nil {
		return l, fmt.Errorf("link %q: %w", text, err)
	}
	l.Delay, err = time.ParseDuration(words[1])
	if err != nil || l.Delay < 0 || l.Delay > maxLinkDelay {
		return l, fmt.Errorf("link %q: %q is not a delay up to %v", text, words[1], maxLinkDelay)
	}
	if len(words) == 3 {
		number, ok := strings.CutSuffix(words[2], "%")
		percent, err := strconv.ParseFloat(number, 64)
		if !ok || err != nil || !(percent >= 0 && percent <= 50) {
			return l, fmt.Errorf("link %q: %q is not a loss from 0%% to 50%%", text, words[2])
		}
		l.Loss = percent / 100
	}
	return l, nil
}

func parseRate(word string) (int64, error) {
	for _, unit := range []struct {
		name string
		bits int64
	}{{"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}} {
		digits, ok := strings.CutSuffix(word, unit.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 32)
		if err == nil && n > 0 && n*unit.bits >= minLinkRate && n*unit.bits <= maxLinkRate {
			return n * unit.bits, nil
		}
	}
	return 0, fmt.Errorf("%q is not a rate such as 500kbit, 20mbit or 1gbit", word)
}

// ErrKernel means that the running kernel lacks what was asked for.
var ErrKernel = errors.New("not in this kernel")

// linkModules are the kernel's parts that a shaped link is made of: the name
// of each for tc(8), its module and its configuration symbol.
var linkModules = []struct{ kind, module, symbol string }{
	{"netem", "sch_netem", "CONFIG_NET_SCH_NETEM"},
	{"fq", "sch_fq", "CONFIG_NET_SCH_FQ"},
}

// Shape gives the network between clients and proxy the qualities of k. All of
// it is on the client's side and runs on its CPUs: what the client sends is
// shaped as it leaves, and what arrives passes through a device of its own,
// ifb0, first. netem delays and loses, fq inside of it paces each connection,
// tc-netem(8), tc-fq(8). Packets leave one by one then, so that a loss is one
// packet's. The error is ErrKernel where the kernel has no netem or fq.
func (l *Lab) Shape(k Link) error {
	if err := l.checkLinkModules(); err != nil {
		return err
	}
	for _, args := range k.commands(l.Client.ns, l.Proxy.ns) {
		if err := command(args[0], args[1:]...); err != nil {
			return fmt.Errorf("shape the link: %w", err)
		}
	}
	return nil
}

func (l *Lab) checkLinkModules() error {
	var missing []string
	for _, m := range linkModules {
		if command("tc", "-n", l.Client.ns, "qdisc", "add", "dev", "lo", "root", m.kind) != nil {
			missing = append(missing, fmt.Sprintf("qdisc %s (module %s, %s)", m.kind, m.module, m.symbol))
			continue
		}
		if err := command("tc", "-n", l.Client.ns, "qdisc", "del", "dev", "lo", "root"); err != nil {
			return fmt.Errorf("probe the kernel: %w", err)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("a shaped link needs %s: %w", strings.Join(missing, " and "), ErrKernel)
	}
	return nil
}

// commands returns what shapes the link between the namespaces of client and
// proxy.
func (k Link) commands(client, proxy string) [][]string {
	return append([][]string{
		{"ip", "-n", client, "link", "set", "cli0", "gso_max_segs", "1"},
		{"ip", "-n", proxy, "link", "set", "prx0", "gso_max_segs", "1"},
		{"ip", "-n", client, "link", "add", "ifb0", "type", "ifb"},
		{"ip", "-n", client, "link", "set", "ifb0", "up"},
		{"tc", "-n", client, "qdisc", "add", "dev", "cli0", "handle", "ffff:", "ingress"},
		{"tc", "-n", client, "filter", "add", "dev", "cli0", "parent", "ffff:", "protocol", "all", "u32", "match", "u32", "0", "0",
			"action", "mirred", "egress", "redirect", "dev", "ifb0"},
	}, append(k.shaper(client, "cli0"), k.shaper(client, "ifb0")...)...)
}

// linkPackets bounds the packets under way: more than all connections of the
// largest scenario have.
const linkPackets = "1000000"

// fq counts a flow's queue in packets: frames of full size for as long as the wire
// queues, and some for flows of small ones.
const (
	frameBits = 1514 * 8
	minQueue  = 100
)

func (k Link) shaper(ns, dev string) [][]string {
	delay := strconv.FormatInt(k.Delay.Microseconds(), 10) + "us"
	loss := strconv.FormatFloat(100*k.Loss, 'f', -1, 64) + "%"
	rate := strconv.FormatInt(k.Rate, 10) + "bit"
	queue := strconv.FormatInt(max(k.Rate*int64(wire.Queue/time.Millisecond)/1000/frameBits, minQueue), 10)
	return [][]string{
		{"tc", "-n", ns, "qdisc", "add", "dev", dev, "root", "handle", "1:", "netem", "limit", linkPackets, "delay", delay, "loss", loss},
		{"tc", "-n", ns, "qdisc", "add", "dev", dev, "parent", "1:1", "handle", "10:", "fq",
			"maxrate", rate, "limit", linkPackets, "flow_limit", queue, "buckets", "65536", "orphan_mask", "65535"},
	}
}

func command(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
