package worker

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"3proxyd/resolver"
)

const (
	// staleWaitMS is how long a session waits for the name of its service's
	// target before the addresses it had are used, in milliseconds (RFC 8767
	// section 5).
	staleWaitMS = 1800
	// staleTTL is for how long they are used before the name is asked for
	// again.
	staleTTL = 30 * time.Second
)

// targetName is a name in the target of a service: it is looked up when its TTL
// is over, and keeps its addresses while no name server answers.
type targetName struct {
	addrs []netip.Addr
}

// nameTargets notes the targets of the services. What before knows of them stays
// known.
func (n *names) nameTargets(services map[string]*service, before *names) {
	targets := make(map[nameKey]*targetName)
	for _, v := range services {
		if v.Target == nil || v.Target.Host == "" {
			continue
		}
		key := nameKey{v.Target.Host, v.family}
		targets[key] = &targetName{}
		if before != nil && before.targets[key] != nil {
			targets[key] = before.targets[key]
		}
	}
	n.targets = targets
}

// stale returns the addresses that a service's target had; nil when the name is
// none, or has not been found yet.
func (n *names) stale(key nameKey) []netip.Addr {
	if t := n.targets[key]; t != nil {
		return t.addrs
	}
	return nil
}

// keepTarget notes a new answer about a target, and replaces one that says
// nothing by what was known.
func (n *names) keepTarget(key nameKey, answer resolver.Answer) resolver.Answer {
	t := n.targets[key]
	switch {
	case t == nil:
		return answer
	case answer.Err == nil && len(answer.Addrs) > 0:
		if t.addrs != nil && !sameAddrs(t.addrs, answer.Addrs) {
			slog.Info("the target of a service has other addresses now", "name", key.name, "addresses", answer.Addrs)
		}
		t.addrs = answer.Addrs
	case errors.Is(answer.Err, resolver.ErrTemporary) && t.addrs != nil:
		n.w.warnNames(answer.Err)
		return resolver.Answer{Addrs: t.addrs, TTL: staleTTL}
	}
	return answer
}

// sameAddrs compares without regard to the order, which servers rotate.
func sameAddrs(a, b []netip.Addr) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.SortFunc(a, netip.Addr.Compare)
	slices.SortFunc(b, netip.Addr.Compare)
	return slices.Equal(a, b)
}

// resolveTimedOut gives up waiting for a name, or for the other family of its
// addresses.
func (s *session) resolveTimedOut() {
	switch d := s.dial; {
	case d.racing:
		s.stopAwaiting()
		return
	case !d.targets.empty():
		s.race()
		return
	}
	key := nameKey{s.host, s.svc.family}
	addrs := s.w.names.stale(key)
	if addrs == nil || s.dial.wait == nil {
		s.refuse(codeNoHost, 0)
		return
	}
	s.dial.wait.leave((*dialName)(s))
	s.dial.wait = nil
	s.resolved(addrs)
}
