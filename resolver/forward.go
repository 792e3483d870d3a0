package resolver

import (
	"context"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"

	"3proxyd/proto/dnsmsg"
)

// Own returns the addresses of a name, in lower case with or without final dot,
// that no name server is asked for: of the nsrecord lines, and of special names.
// None, or an unspecified one, means that the name does not exist. It does not
// block.
func (r *Resolver) Own(name string) (addrs []netip.Addr, ok bool) {
	host := strings.TrimSuffix(name, ".")
	if addrs, ok = r.static[host]; ok {
		return addrs, true
	}
	return special(host)
}

// Hosts returns the addresses that hosts(5) has for a name, in lower case with
// or without final dot, if the resolver looks there. It may read the file.
func (r *Resolver) Hosts(name string) (addrs []netip.Addr, ok bool) {
	if r.system == nil {
		return nil, false
	}
	_, hosts := r.system.current(time.Now())
	addrs, ok = hosts[strings.TrimSuffix(name, ".")]
	return addrs, ok
}

// Forward asks the name servers for records of any type, class IN, and returns
// the message of the first that answers, be it that there are none. name has a
// final dot. It blocks like Lookup.
func (r *Resolver) Forward(ctx context.Context, name string, qtype uint16, flags dnsmsg.Flags) (*dns.Msg, error) {
	p := r.plan
	if r.system != nil {
		p, _ = r.system.current(time.Now())
	}
	return r.query(ctx, p, asking{name, qtype, flags})
}
