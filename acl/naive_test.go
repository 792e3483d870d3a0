package acl

import (
	"net/netip"
	"slices"
	"strings"

	"3proxyd/config"
	"3proxyd/internal/ipaddr"
)

// naiveCheck is the meaning of a list, rule by rule.
func naiveCheck(rules []config.Rule, r *Request) (Verdict, int) {
	if len(rules) == 0 {
		return Allow, -1
	}
	host := strings.ToLower(strings.TrimRight(r.Host, "."))
	addr := r.Addr.Unmap()
	if a, err := netip.ParseAddr(r.Host); err == nil {
		host, addr = "", a.Unmap()
	}
	verdict, number := NoMatch, -1
	possible := map[Verdict]bool{}
	for i := range rules {
		sure, maybe := naiveRule(&rules[i], r, host, addr)
		if sure || maybe && !addr.IsValid() && !r.NoAddr {
			possible[verdictOf(rules[i].Allow)] = true
		}
		if sure {
			verdict, number = verdictOf(rules[i].Allow), i
			break
		}
	}
	possible[verdict] = true
	if len(possible) > 1 {
		return NeedAddr, number
	}
	return verdict, number
}

// naiveRule tells whether a rule matches, and whether it would for some
// address.
func naiveRule(c *config.Rule, r *Request, host string, addr netip.Addr) (sure, maybe bool) {
	client := r.Client.Unmap()
	switch {
	case len(c.Users) > 0 && (r.User == "" || !slices.Contains(c.Users, r.User)),
		len(c.Sources) > 0 && !naiveIn(c.Sources, client),
		len(c.Ports) > 0 && !slices.ContainsFunc(c.Ports, func(p config.PortRange) bool { return r.Port >= p.From && r.Port <= p.To }),
		c.Operations != 0 && c.Operations&r.Op == 0,
		c.Weekdays != 0 && c.Weekdays&(1<<r.Weekday) == 0,
		len(c.Times) > 0 && !slices.ContainsFunc(c.Times, func(t config.TimeRange) bool { return r.Second >= t.From && r.Second < t.To }):
		return false, false
	}
	if len(c.Targets) == 0 && len(c.TargetHosts) == 0 {
		return true, true
	}
	v4, _ := ipaddr.Embedded(addr)
	targets := c.Targets
	if v4.IsValid() && c.Allow {
		targets = slices.DeleteFunc(slices.Clone(targets), widerThanEmbedding)
	}
	sure = naiveIn(targets, addr) || naiveIn(c.Targets, v4) ||
		host != "" && slices.ContainsFunc(c.TargetHosts, func(p config.HostPattern) bool { return naiveHost(p, host) })
	return sure, sure || len(c.Targets) > 0
}

func widerThanEmbedding(r config.IPRange) bool {
	return !slices.ContainsFunc(ipaddr.Prefixes(), func(p netip.Prefix) bool { return p.Contains(r.From) && p.Contains(r.To) })
}

func naiveIn(ranges []config.IPRange, a netip.Addr) bool {
	if !a.IsValid() {
		return false
	}
	for _, r := range ranges {
		from, to := r.From.Unmap(), r.To.Unmap()
		if from.BitLen() == a.BitLen() && to.BitLen() == a.BitLen() && !a.Less(from) && !to.Less(a) {
			return true
		}
	}
	return false
}

func naiveHost(p config.HostPattern, host string) bool {
	switch {
	case p.AnyPrefix && p.AnySuffix:
		return strings.Contains(host, p.Name)
	case p.AnyPrefix:
		return strings.HasSuffix(host, p.Name)
	case p.AnySuffix:
		return strings.HasPrefix(host, p.Name)
	}
	return host == p.Name
}

func (l *List) verdict(r *Request) (Verdict, int) { return l.check(r, r.User) }
