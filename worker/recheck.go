package worker

import (
	"net/netip"

	"3proxyd/acl"
	"3proxyd/ipc"
	"3proxyd/proto/socks"
)

// recheckSessions applies the rules of a new generation to the sessions of
// services that ask for it (the force command), or of all. before are the
// services until now; those that are gone allow nothing any more.
func (w *Worker) recheckSessions(before map[string]*service, all bool) {
	for s := w.sessions.head; s != nil; {
		next := s.next
		now := w.services[s.svc.ID]
		switch was := before[s.svc.ID]; {
		case s.phase == phaseClosing || s.phase == phaseAborting:
		case now != nil && (all || now.Force):
			s.obey(now)
		case now == nil && (all || was != nil && was.Force || s.svc.Force):
			s.endByRules(code(acl.NoRule))
		}
		s = next
	}
}

// obey gives the session the service of the new generation, and ends it when
// its rules do not allow the present request. A session that has not asked for
// anything yet is asked under the new rules.
func (s *session) obey(now *service) {
	before := s.svc.policy
	s.svc = now
	switch s.phase {
	case phaseHandshake, phaseIdle, phaseSkip:
		if s.srv == nil || s.http != nil {
			return
		}
	case phaseResolve, phaseConnect:
		s.dial.recheck = before
	case phaseBind:
		s.obeyBind(now.policy, before)
		return
	case phaseAssociate:
		s.association().obey(now.policy, before)
		return
	}
	addr := s.addr
	if s.srv != nil && s.srv.addr.IsValid() {
		addr = s.srv.addr.Addr()
	}
	if s.udp != nil && s.udp.server.IsValid() {
		addr = s.udp.server.Addr()
	}
	decision := s.recheck(addr, now.policy, before)
	if !decision.NeedAddr && decision.Code != acl.OK {
		s.endByRules(code(decision.Code))
	}
}

// recheck decides about the present request under the rules of now, which
// before has allowed. A request that has no address yet is decided upon when it
// has.
func (s *session) recheck(addr netip.Addr, now, before *acl.Policy) acl.Decision {
	r := s.aclRequest(addr, !addr.IsValid() && s.host == "")
	return now.Recheck(&r, s.user, before)
}

// endByRules ends a session that is not allowed any more.
func (s *session) endByRules(c code) {
	s.svc.cell.Add(ipc.EndedByRules, 1)
	switch s.phase {
	case phaseResolve, phaseConnect:
		s.refuse(c, 0)
	case phaseExchange:
		(*httpClient)(s).answerRefused(c, 0)
	case phaseIdle, phaseSkip:
		s.endQuietly()
	case phaseRelay:
		s.code = c
		s.cut()
	case phaseHandshake, phaseDatagrams:
		s.fail(c)
	case phaseBind:
		(*socksClient)(s).reject(c, socks.ReplyNotAllowed)
	case phaseAssociate:
		s.code = c
		s.log()
		s.cli.Reset()
		s.release()
	}
}
