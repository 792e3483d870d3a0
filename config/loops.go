package config

import "strings"

// leadsTo reports whether the connections of a port mapping go to the listening
// address of o, as far as that can be told without resolving names.
func (s *Service) leadsTo(o *Service) bool {
	t := s.Target
	switch {
	case t == nil || o.Listen.Systemd != "" || s.Listen.Network != o.Listen.Network:
		return false
	case t.Unix != "" || o.Listen.Unix != "":
		return cleanUnix(t.Unix) == cleanUnix(o.Listen.Unix)
	case t.Port != o.Listen.Port:
		return false
	case t.Host != "":
		return t.Host == "localhost" && (o.Listen.Addr.IsLoopback() || o.Listen.Addr.IsUnspecified())
	}
	return t.Addr == o.Listen.Addr ||
		o.Listen.Addr.IsUnspecified() && t.Addr.IsLoopback() && t.Addr.Is4() == o.Listen.Addr.Is4()
}

// asksItself reports whether a name server is where a dnspr service listens.
func (s *Service) asksItself(server NameServer) bool {
	if s.Kind != DNSPR || s.Listen.Systemd != "" || (s.Listen.Network == UDP) == server.TCP {
		return false
	}
	at := Service{Listen: s.Listen, Target: &Endpoint{Addr: server.Addr.Addr(), Port: server.Addr.Port()}}
	return at.leadsTo(s)
}

// checkNameServers reports dnspr services that would ask themselves.
func (l *loader) checkNameServers() {
	for i := range l.cfg.Services {
		s := &l.cfg.Services[i]
		for _, server := range l.cfg.Resolver.Servers {
			if s.asksItself(server) {
				l.diags.add(l.seqOf[s.Pos], s.Pos, Error, "dnspr: it would ask itself: nserver "+server.Addr.String()+" is where it listens")
			}
		}
	}
}

// checkLoops reports port mappings that lead to each other in a circle: each
// session would open the next until no descriptor is left.
func (l *loader) checkLoops() {
	next := make([]int, len(l.cfg.Services))
	byPort := map[uint16][]int{}
	for i := range l.cfg.Services {
		port := l.cfg.Services[i].Listen.Port
		byPort[port] = append(byPort[port], i)
	}
	for i := range l.cfg.Services {
		next[i] = l.mappedTo(i, byPort)
	}
	// seen has the number of the walk that came by first, plus 1.
	seen := make([]int, len(next))
	for start := range next {
		for i := start; i >= 0; i = next[i] {
			if seen[i] == start+1 {
				l.reportLoop(i, next)
				break
			}
			if seen[i] != 0 {
				break
			}
			seen[i] = start + 1
		}
	}
}

// mappedTo returns the service that a port mapping leads to, or -1.
func (l *loader) mappedTo(i int, byPort map[uint16][]int) int {
	s := &l.cfg.Services[i]
	if s.Target == nil {
		return -1
	}
	for _, j := range byPort[s.Target.Port] {
		if s.leadsTo(&l.cfg.Services[j]) {
			return j
		}
	}
	return -1
}

func (l *loader) reportLoop(first int, next []int) {
	s := &l.cfg.Services[first]
	way := []string{s.Listen.String()}
	for i := next[first]; ; i = next[i] {
		way = append(way, l.cfg.Services[i].Listen.String())
		if i == first {
			break
		}
	}
	l.diags.add(l.seqOf[s.Pos], s.Pos, Error, string(s.Kind)+": its connections would go round: "+strings.Join(way, " -> "))
}
