package worker

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"3proxyd/config"
	"3proxyd/ipc"
	"3proxyd/resolver"
)

const (
	// A worker has one lookup under way for each fdsPerLookup descriptors it
	// may open, within bounds: each may hold two sockets. One client gets half
	// of them at most, so that names nobody answers for, asked for by one, do
	// not keep the others waiting.
	fdsPerLookup = 32
	minLookups   = 32
	maxLookups   = 1024
	// maxSkipped bounds how far the queue is searched for a lookup that may
	// start.
	maxSkipped = 256
	// lookupServers times the DNS timeout, which is for one server, bounds a
	// whole lookup.
	lookupServers = 3
)

type nameState uint8

const (
	nameAsk nameState = iota
	nameKnown
	nameUnknown
)

// names resolves host names for the sessions: a cache owned by the loop, and
// lookups in goroutines of their own, one for all sessions that want a name.
type names struct {
	w   *Worker
	cfg config.Resolver
	net *resolver.Resolver
	// caches are those of the addresses of each family, and of both.
	caches  [resolver.Both + 1]*resolver.Cache
	timeout time.Duration
	waits   map[nameKey]*nameWait
	forward *dnsForwarder
	targets map[nameKey]*targetName
	queue   []*nameWait
	running int
	// byClient counts the lookups under way by the client that asked first.
	byClient map[netip.Addr]int
}

// nameKey is what is looked up.
type nameKey struct {
	name   string
	family resolver.Family
}

// nameWait is a lookup and those who wait for it.
type nameWait struct {
	nameKey
	client  netip.Addr // who asked first
	waiting []nameWaiter
	// early are the addresses of one family, when those of the other are not known
	// yet.
	early []netip.Addr
	// answering is set while those who wait are called.
	answering bool
}

// nameWaiter wants to know the addresses of a name.
type nameWaiter interface {
	// named is called with the addresses, or without when there are none. The
	// wait is over by then.
	named(addrs []netip.Addr)
}

// earlyWaiter is one that can do something with the addresses of one family.
type earlyWaiter interface {
	// namedEarly is called with them, at most once; the wait goes on.
	namedEarly(addrs []netip.Addr)
}

// dialName is a session that waits for the name of its target.
type dialName session

func (d *dialName) named(addrs []netip.Addr) {
	s := (*session)(d)
	s.dial.wait = nil
	if s.dial.racing {
		s.moreResolved(addrs)
		return
	}
	s.w.loop.StopTimer(&s.timer)
	if len(addrs) == 0 {
		s.refuse(codeNoHost, 0)
		return
	}
	s.resolved(addrs)
}

func newNames(w *Worker, cfg config.Resolver, dnsTimeout int) (*names, error) {
	timeout := time.Duration(max(dnsTimeout, 1)) * time.Second
	net, err := resolver.New(cfg, timeout)
	if err != nil {
		return nil, err
	}
	n := &names{
		w:       w,
		cfg:     cfg,
		net:     net,
		timeout: lookupServers * timeout,
		waits:   make(map[nameKey]*nameWait),

		byClient: make(map[netip.Addr]int),
	}
	for f := range n.caches {
		n.caches[f] = resolver.NewCache(cacheSize(cfg, resolver.Family(f)))
	}
	n.forward = newDNSForwarder(n)
	return n, nil
}

// cacheSize is how many names of a family are kept: as nscache and nscache6
// say, and for both the greater number.
func cacheSize(cfg config.Resolver, f resolver.Family) int {
	size := max(cfg.CacheSize, cfg.CacheSize6)
	switch f {
	case resolver.V4:
		size = cfg.CacheSize
	case resolver.V6:
		size = cfg.CacheSize6
	}
	return cmp.Or(size, config.DefaultNameCache)
}

// same reports whether other resolves in the same way, so that what is cached
// need not be asked again.
func (n *names) same(other *names) bool {
	return n != nil && n.timeout == other.timeout && reflect.DeepEqual(n.cfg, other.cfg)
}

// cached returns the addresses of a family that are known of a name.
func (n *names) cached(name string, family resolver.Family) ([]netip.Addr, nameState) {
	addrs, state := n.caches[family].Get(name, n.w.loop.Now())
	switch state {
	case resolver.Fresh:
		n.w.loopCell.Add(ipc.NameHits, 1)
		return addrs, nameKnown
	case resolver.Negative:
		n.w.loopCell.Add(ipc.NameHits, 1)
		return nil, nameUnknown
	}
	return nil, nameAsk
}

// ask has s.resolved called when the name of s is known, or s.refuse.
func (n *names) ask(s *session) {
	key := nameKey{s.host, s.svc.family}
	limit := n.patience(s.svc)
	if n.stale(key) != nil {
		limit = min(limit, staleWaitMS)
	}
	wait := n.wait(key, s.client.Addr(), (*dialName)(s))
	s.dial.wait = wait
	s.arm(limit)
	if wait.early != nil {
		(*dialName)(s).namedEarly(wait.early)
	}
}

// wait has v.named called, later, when what a client has asked for is known.
func (n *names) wait(key nameKey, client netip.Addr, v nameWaiter) *nameWait {
	wait := n.waits[key]
	if wait == nil {
		wait = &nameWait{nameKey: key, client: client}
		n.waits[key] = wait
		n.queue = append(n.queue, wait)
	}
	wait.waiting = append(wait.waiting, v)
	n.startQueued()
	return wait
}

// patience is how long a request of a service waits for its name, in
// milliseconds.
func (n *names) patience(v *service) int64 {
	return min(n.timeout.Milliseconds(), lookupServers*seconds(v.Timeouts.DNS))
}

// startQueued starts lookups that wait, in order, but for those of clients that
// have their share under way.
func (n *names) startQueued() {
	limit := n.limit()
	skipped := 0
	for i, wait := range n.queue {
		if skipped == maxSkipped || n.running >= limit {
			break
		}
		switch {
		case !wait.wanted():
			delete(n.waits, wait.nameKey)
		case n.byClient[wait.client] >= limit/2:
			skipped++
			continue
		default:
			n.start(wait)
		}
		n.queue[i] = nil
	}
	// Clients that come and go must not make the queue grow.
	n.queue = slices.DeleteFunc(n.queue, func(wait *nameWait) bool {
		if wait != nil && !wait.wanted() {
			delete(n.waits, wait.nameKey)
			return true
		}
		return wait == nil
	})
}

// limit is how many lookups may be under way.
func (n *names) limit() int {
	return min(max(n.w.maxFDs/fdsPerLookup, minLookups), maxLookups)
}

func (n *names) start(wait *nameWait) {
	n.running++
	n.byClient[wait.client]++
	n.w.loopCell.Add(ipc.NameQueries, 1)
	go n.lookup(wait)
}

// lookup runs in a goroutine of its own.
func (n *names) lookup(wait *nameWait) {
	ctx, cancel := context.WithTimeout(context.Background(), n.timeout)
	defer cancel()
	early := func(addrs []netip.Addr) { n.w.loop.Post(func() { wait.answeredEarly(addrs) }) }
	answer := n.net.LookupEarly(ctx, wait.name, wait.family, early)
	n.w.loop.Post(func() { n.answered(wait, answer) })
}

// answered takes the result of a lookup on the loop.
func (n *names) answered(wait *nameWait, answer resolver.Answer) {
	n.running--
	if n.byClient[wait.client]--; n.byClient[wait.client] == 0 {
		delete(n.byClient, wait.client)
	}
	delete(n.waits, wait.nameKey)
	answer = n.keepTarget(wait.nameKey, answer)
	n.caches[wait.family].Put(wait.name, answer, n.w.loop.Now())
	if errors.Is(answer.Err, resolver.ErrTemporary) {
		n.w.warnNames(answer.Err)
	}
	addrs := answer.Addrs
	if answer.Err != nil {
		addrs = nil
	}
	// One that is called may have another leave.
	wait.answering = true
	for _, v := range wait.waiting {
		if v != nil {
			v.named(addrs)
		}
	}
	n.startQueued()
}

// answeredEarly tells those who wait what is known so far.
func (wait *nameWait) answeredEarly(addrs []netip.Addr) {
	wait.early = addrs
	wait.answering = true
	for _, v := range wait.waiting {
		if e, ok := v.(earlyWaiter); ok {
			e.namedEarly(addrs)
		}
	}
	wait.answering = false
	wait.waiting = slices.DeleteFunc(wait.waiting, func(v nameWaiter) bool { return v == nil })
}

// wanted reports whether somebody still waits.
func (wait *nameWait) wanted() bool { return len(wait.waiting) > 0 }

// leave takes one that no longer waits off the list.
func (wait *nameWait) leave(v nameWaiter) {
	i := slices.Index(wait.waiting, v)
	switch {
	case i < 0:
	case wait.answering:
		wait.waiting[i] = nil
	default:
		wait.waiting = slices.Delete(wait.waiting, i, i+1)
	}
}
