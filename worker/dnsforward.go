package worker

import (
	"context"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"

	"3proxyd/accesslog"
	"3proxyd/acl"
	"3proxyd/config"
	"3proxyd/ipc"
	"3proxyd/proto/dnsmsg"
	"3proxyd/resolver"
)

const (
	// dnsPort is what the access list of a dnspr service sees as the port of
	// every question.
	dnsPort = 53
	// dnsCacheBytes bounds the messages that a worker keeps.
	dnsCacheBytes = 16 << 20
	// maxDNSWaiting bounds the queries that wait for one answer.
	maxDNSWaiting = 256
)

// dnsQuery is a query of a client of a dnspr service, until it is answered.
type dnsQuery struct {
	dnsmsg.Query
	svc    *service
	client netip.AddrPort
	// answer sends the reply.
	answer dnsAnswerer
	// ref is for the answerer: which of its clients it is, or was.
	ref   uint64
	began int64
	size  int // of the query in bytes
}

// dnsAnswerer takes the replies to queries over TCP or UDP.
type dnsAnswerer interface {
	// tcp reports whether replies are of any length, and clients who they say
	// they are.
	tcp() bool
	// reply sends the reply to d and returns its length in bytes, 0 when the
	// client is gone.
	reply(d *dnsQuery, content *dnsmsg.Content, age time.Duration) int
	// dropped is called instead when there is no reply.
	dropped(d *dnsQuery)
}

// dnsForwarder answers from a cache owned by the loop, or asks the name servers
// in goroutines of their own, once for all clients with the same question.
type dnsForwarder struct {
	n       *names
	cache   *dnsmsg.Cache
	waits   map[dnsmsg.Key]*dnsWait
	running int
	// byClient counts the questions under way by the client that asked first.
	byClient map[netip.Addr]int
}

// dnsWait is a question under way and the queries that wait for its answer.
type dnsWait struct {
	key     dnsmsg.Key
	client  netip.Addr // who asked first
	waiting []*dnsQuery
}

func newDNSForwarder(n *names) *dnsForwarder {
	size := cacheSize(n.cfg, resolver.Both)
	return &dnsForwarder{
		n: n, cache: dnsmsg.NewCache(size, dnsCacheBytes),
		waits: make(map[dnsmsg.Key]*dnsWait), byClient: make(map[netip.Addr]int),
	}
}

// takeDNS carries out a query as it came from a client: wire is not used after
// the call. What is no query at all is dropped; false says so.
func (w *Worker) takeDNS(d *dnsQuery, wire []byte) bool {
	query, verdict, rcode := dnsmsg.Parse(wire)
	d.Query, d.began, d.size = query, w.loop.Now(), len(wire)
	d.svc.cell.Add(ipc.BytesOut, uint64(len(wire)))
	switch verdict {
	case dnsmsg.Drop:
		d.svc.cell.Add(ipc.ProtocolErrors, 1)
		d.answer.dropped(d)
		return false
	case dnsmsg.Refuse:
		w.answerDNS(d, dnsmsg.Failure(rcode), 0, codeDNSError+code(rcode))
		return true
	}
	d.svc.cell.Add(ipc.Requests, 1)
	if c := w.decideDNS(d); c != acl.OK {
		w.answerDNS(d, dnsmsg.Failure(dns.RcodeRefused), 0, code(c))
		return true
	}
	w.names.forward.resolve(d)
	return true
}

// decideDNS asks the access list about the name. With its final dot it is a name
// whatever it looks like; it has no address to be compared.
func (w *Worker) decideDNS(d *dnsQuery) acl.Code {
	r := acl.Request{Client: d.client.Addr(), Host: d.Name, NoAddr: true, Port: dnsPort, Op: config.OpDNSResolve}
	if d.svc.timed {
		r.Weekday, r.Second = w.clock.local(w.loop.Now())
	}
	return d.svc.policy.Decide(&r, nil).Code
}

// resolve answers a query that is allowed: at once, or when a name server has.
func (f *dnsForwarder) resolve(d *dnsQuery) {
	w, key := f.n.w, d.Key()
	if addrs, ok := f.n.net.Own(key.Name); ok {
		w.answerContent(d, dnsmsg.FromAddrs(&d.Query, addrs), 0)
		return
	}
	switch {
	case !d.RecursionDesired:
		// There is nothing but what others have asked for, which is not this
		// client's business.
		w.answerDNS(d, dnsmsg.Failure(dns.RcodeRefused), 0, codeDNSError+dns.RcodeRefused)
		return
	case d.Type == dns.TypeANY && !d.answer.tcp():
		// The longest answers there are do not go to addresses that may be
		// forged (RFC 8482).
		w.answerDNS(d, nil, 0, codeOK)
		return
	}
	if content, age := f.cache.Get(key, w.loop.Now()); content != nil {
		w.loopCell.Add(ipc.NameHits, 1)
		w.answerContent(d, content, age)
		return
	}
	f.wait(key, d)
}

// wait has the query wait for the answer of a name server, which is asked unless
// it has been already. Beyond the limits queries over UDP are dropped: clients
// ask again.
func (f *dnsForwarder) wait(key dnsmsg.Key, d *dnsQuery) {
	w, client := f.n.w, d.client.Addr()
	wait := f.waits[key]
	limit := f.n.limit()
	switch {
	case wait != nil && len(wait.waiting) < maxDNSWaiting:
		wait.waiting = append(wait.waiting, d)
		return
	case wait == nil && f.running < limit && f.byClient[client] < limit/2:
	case d.answer.tcp():
		w.answerDNS(d, dnsmsg.Failure(dns.RcodeServerFailure), 0, codeNoResources)
		return
	default:
		d.svc.count(codeNoResources)
		d.answer.dropped(d)
		return
	}
	wait = &dnsWait{key: key, client: client, waiting: []*dnsQuery{d}}
	f.waits[key] = wait
	f.running++
	f.byClient[client]++
	w.dnsRunning++
	w.loopCell.Add(ipc.NameQueries, 1)
	go f.ask(wait)
}

// ask runs in a goroutine of its own.
func (f *dnsForwarder) ask(wait *dnsWait) {
	ctx, cancel := context.WithTimeout(context.Background(), f.n.timeout/lookupServers)
	defer cancel()
	if addrs, ok := f.n.net.Hosts(wait.key.Name); ok {
		f.n.w.loop.Post(func() { f.answered(wait, addrs, nil, nil) })
		return
	}
	m, err := f.n.net.Forward(ctx, wait.key.Name, wait.key.Type, wait.key.Flags)
	f.n.w.loop.Post(func() { f.answered(wait, nil, m, err) })
}

// answered takes on the loop what a name server, or hosts(5), says.
func (f *dnsForwarder) answered(wait *dnsWait, addrs []netip.Addr, m *dns.Msg, err error) {
	w := f.n.w
	f.running--
	if f.byClient[wait.client]--; f.byClient[wait.client] == 0 {
		delete(f.byClient, wait.client)
	}
	delete(f.waits, wait.key)
	var content *dnsmsg.Content
	switch {
	case m != nil:
		content = dnsmsg.FromServer(m)
	case err != nil:
		w.warnNames(err)
		content = dnsmsg.Failure(dns.RcodeServerFailure)
	default:
		content = dnsmsg.FromAddrs(&wait.waiting[0].Query, addrs)
	}
	f.cache.Put(wait.key, content, w.loop.Now())
	for _, d := range wait.waiting {
		w.answerContent(d, content, 0)
	}
	w.dnsRunning--
	w.sessionEnded()
}

// answerContent answers with what has been found out about the name.
func (w *Worker) answerContent(d *dnsQuery, content *dnsmsg.Content, age time.Duration) {
	c := codeOK
	if content.Rcode != dns.RcodeSuccess {
		c = codeNoHost
	}
	w.answerDNS(d, content, age, c)
}

// answerDNS sends a reply and logs the query. A nil content makes the client ask
// again over TCP.
func (w *Worker) answerDNS(d *dnsQuery, content *dnsmsg.Content, age time.Duration, c code) {
	n := d.answer.reply(d, content, age)
	d.svc.cell.Add(ipc.BytesIn, uint64(n))
	if n == 0 {
		c = codeClientReset
	}
	d.svc.count(c)
	w.logDNS(d, content, c, n)
}

// logDNS writes the line of a query.
func (w *Worker) logDNS(d *dnsQuery, content *dnsmsg.Content, c code, n int) {
	f := d.svc.log
	if f == nil || f.out == nil {
		return
	}
	f.cell = d.svc.cell
	now := time.Now().UnixNano()
	w.record = accesslog.Record{
		Start:       now - (w.loop.Now()-d.began)*int64(time.Millisecond),
		End:         now,
		Service:     protoDNS.String(),
		ServicePort: d.svc.port,
		Host:        strings.TrimSuffix(d.Name, "."),
		Client:      d.client,
		Internal:    d.svc.internal,
		Code:        int(c),
		BytesIn:     uint64(n),
		BytesOut:    uint64(d.size),
		Text:        appendDNSText(w.scratch[:0], d, content),
	}
	f.write(d.svc, &w.record)
}

// appendDNSText is %T: type and name, and the first address, or the response code.
func appendDNSText(b []byte, d *dnsQuery, content *dnsmsg.Content) []byte {
	b = append(b, dns.Type(d.Type).String()...)
	b = append(append(b, ' '), strings.TrimSuffix(d.Name, ".")...)
	b = append(b, ' ')
	switch {
	case content == nil:
		return append(b, "TC"...)
	case content.Rcode != dns.RcodeSuccess:
		return append(b, dns.RcodeToString[content.Rcode]...)
	}
	if addrs := content.Addrs(1); len(addrs) > 0 {
		return addrs[0].AppendTo(b)
	}
	return append(b, "NOERROR"...)
}
