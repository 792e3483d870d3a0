package worker

import (
	"golang.org/x/sys/unix"

	"3proxyd/relay"
)

const (
	// poolIdleMS is how long a server connection is kept without use, in
	// milliseconds.
	poolIdleMS = 30_000
	// poolMarginMS is how much earlier than its server says a connection is
	// given up, in milliseconds: a request must not meet the server's FIN.
	poolMarginMS = 500
	// poolMax bounds the idle connections of a worker, poolMaxEach those of
	// one client, user and target.
	poolMax     = 1024
	poolMaxEach = 512
	// poolSweepMS is how often the pool looks for connections to close.
	poolSweepMS = 1000
)

// originPool keeps idle connections to origin servers. A bucket holds those
// for one service (as one configuration has it, with its source addresses),
// client address, user, host and port, so that nobody is served over a
// connection that was opened for somebody else.
type originPool struct {
	w       *Worker
	buckets map[string]*poolBucket
	// oldest and newest are the ends of the list of all idle connections, in
	// the order in which they became idle.
	oldest, newest *upstream
	count          int
	free           *poolLinks
	sweep          relay.Timer
	key            []byte
}

type poolBucket struct {
	key   string
	head  *upstream // the one used last
	count int
}

// poolLinks is the place of an idle connection in its bucket and in the list
// of all.
type poolLinks struct {
	owner        *originPool
	bucket       *poolBucket
	above, below *upstream
	older, newer *upstream
	since, until int64      // the loop's time
	next         *poolLinks // of those that are not in use
}

func (p *originPool) takeLinks() *poolLinks {
	k := p.free
	if k == nil {
		return &poolLinks{owner: p}
	}
	p.free = k.next
	k.next = nil
	return k
}

func (p *originPool) freeLinks(k *poolLinks) {
	*k = poolLinks{owner: p, next: p.free}
	p.free = k
}

func (p *originPool) init(w *Worker) {
	p.w = w
	p.buckets = make(map[string]*poolBucket)
}

// makeKey writes the key of the session's present target into p.key.
func (p *originPool) makeKey(s *session) {
	k := append(p.key[:0], s.svc.poolKey...)
	k = append(k, 0)
	if addr := s.client.Addr(); addr.IsValid() {
		ip := addr.As16()
		k = append(k, ip[:]...)
	}
	k = append(append(k, 0), s.user...)
	k = append(append(k, 0), s.host...)
	if s.host == "" {
		k = s.addr.AppendTo(k)
	}
	p.key = append(k, 0, byte(s.port>>8), byte(s.port))
}

// get takes the connection to the target of s that was used last, unless it
// has been idle for longer than maxIdle milliseconds; nil when there is none.
func (p *originPool) get(s *session, maxIdle int64) *upstream {
	if p.count == 0 {
		return nil
	}
	p.makeKey(s)
	b := p.buckets[string(p.key)]
	now := p.w.loop.Now()
	if b == nil || b.head == nil || now-b.head.pool.since > maxIdle {
		return nil
	}
	u := b.head
	late := now >= u.pool.until
	p.unlink(u)
	u.StopRead()
	if late || u.HangupSeen() || u.MayRead() {
		p.w.freeUpstream(u)
		return p.get(s, maxIdle)
	}
	return u
}

// put keeps u for the next request to the target of s, for at most maxIdle
// milliseconds.
func (p *originPool) put(s *session, u *upstream, maxIdle int64) {
	if p.w.draining || maxIdle <= 0 {
		p.w.freeUpstream(u)
		return
	}
	p.makeKey(s)
	b := p.buckets[string(p.key)]
	if b == nil {
		b = &poolBucket{key: string(p.key)}
		p.buckets[b.key] = b
	}
	if b.count >= poolMaxEach {
		p.w.freeUpstream(u)
		return
	}
	b.count++
	u.s = nil
	k := p.takeLinks()
	k.bucket, k.below, k.older, k.since = b, b.head, p.newest, p.w.loop.Now()
	k.until = k.since + maxIdle
	u.pool = k
	if b.head != nil {
		b.head.pool.above = u
	}
	b.head = u
	if p.newest != nil {
		p.newest.pool.newer = u
	} else {
		p.oldest = u
	}
	p.newest = u
	p.count++
	u.SetHandler((*idleUpstream)(u))
	u.StartRead()
	if p.count > poolMax {
		p.evict(1)
	}
	if !p.sweep.Set() {
		p.w.loop.SetTimer(&p.sweep, poolSweepMS, p)
	}
}

func (p *originPool) unlink(u *upstream) {
	k := u.pool
	if k.above != nil {
		k.above.pool.below = k.below
	} else {
		k.bucket.head = k.below
	}
	if k.below != nil {
		k.below.pool.above = k.above
	}
	if k.older != nil {
		k.older.pool.newer = k.newer
	} else {
		p.oldest = k.newer
	}
	if k.newer != nil {
		k.newer.pool.older = k.older
	} else {
		p.newest = k.older
	}
	k.bucket.count--
	u.pool = nil
	p.freeLinks(k)
	p.count--
}

// evict closes the n connections that have been idle longest and returns how
// many there were.
func (p *originPool) evict(n int) int {
	done := 0
	for ; done < n && p.oldest != nil; done++ {
		p.drop(p.oldest)
	}
	return done
}

func (p *originPool) drop(u *upstream) {
	p.unlink(u)
	p.w.freeUpstream(u)
}

// OnTimer closes what has been idle too long and forgets empty buckets.
func (p *originPool) OnTimer(*relay.Timer) {
	old := p.w.loop.Now() - poolIdleMS
	for p.oldest != nil && p.oldest.pool.since < old {
		p.drop(p.oldest)
	}
	for key, b := range p.buckets {
		if b.head == nil {
			delete(p.buckets, key)
		}
	}
	if p.count > 0 {
		p.w.loop.SetTimer(&p.sweep, poolSweepMS, p)
	}
}

// idleUpstream handles a connection in the pool: whatever the server does with
// it ends it.
type idleUpstream upstream

// OnConnect does not come: the connection is established.
func (i *idleUpstream) OnConnect(*relay.Conn, unix.Errno) {}

// OnData is an answer nobody asked for, which must not meet the next request.
func (i *idleUpstream) OnData(*relay.Conn, []byte) { i.drop() }

// OnEOF is the server's end of an idle connection.
func (i *idleUpstream) OnEOF(*relay.Conn) { i.drop() }

// OnSent is of no interest.
func (i *idleUpstream) OnSent(*relay.Conn) {}

// OnFlow does not come: there is no flow.
func (i *idleUpstream) OnFlow(*relay.Flow) {}

// OnError is the server's end of an idle connection.
func (i *idleUpstream) OnError(*relay.Conn, unix.Errno) { i.drop() }

func (i *idleUpstream) drop() {
	u := (*upstream)(i)
	u.pool.owner.drop(u)
}
