package acl

import (
	"slices"

	"3proxyd/config"
)

// Creds is what a client says about itself.
type Creds struct {
	HasUser bool
	User    string
	// Pass is the password; without one (SOCKS 4) it counts as empty.
	HasPass bool
	Pass    []byte
}

// user is the name given, "" for none.
func (c *Creds) user() string {
	if c == nil || !c.HasUser {
		return ""
	}
	return c.User
}

func (c *Creds) pass() []byte {
	if c == nil || !c.HasPass {
		return nil
	}
	return c.Pass
}

// Decision is the answer of a Policy.
type Decision struct {
	// Code is OK or why the request is refused; it has no meaning while
	// NeedAddr is set.
	Code Code
	// NeedAddr means that the address of the target decides: resolve the
	// name, set Request.Addr and decide again.
	NeedAddr bool
	// Rule is the number of the rule that decided, counted from 0, or -1.
	Rule int
	// User is the name to log and to account for. Only the method strong
	// has verified it.
	User string
}

// Policy is the authentication and authorisation of a service: its methods in
// order, its access list and the users. It is immutable.
type Policy struct {
	methods []config.AuthMethod
	list    *List
	users   *Users
}

// NewPolicy returns the policy of the methods (none when empty) with a list,
// nil meaning that everything is allowed, and the users.
func NewPolicy(methods []config.AuthMethod, list *List, users *Users) *Policy {
	methods = slices.Clone(methods)
	if len(methods) == 0 {
		methods = []config.AuthMethod{config.AuthNone}
	}
	return &Policy{methods, list, users}
}

// Decide tries the methods in order, as 3proxy does:
//
//   - none allows the request without looking at the list;
//   - iponly allows what the list allows to nobody in particular: rules that
//     name users do not match;
//   - useronly takes the user name as given, strong verifies it with the
//     password; the list then decides, finally, for that user.
//
// When no method allows the request the code is the highest of theirs, so that
// `auth iponly strong` ends in NoUser, upon which the service asks for a
// password. r.User is not used but to fill Decision.User when there are no
// credentials. Nothing is allocated.
func (p *Policy) Decide(r *Request, c *Creds) Decision { return p.decide(r, c, false) }

// Recheck decides about a request of a user whose credentials are gone and that
// before allowed: whom before has verified by a password, and whose secret is
// the same here, counts as verified.
func (p *Policy) Recheck(r *Request, user string, before *Policy) Decision {
	c := &Creds{HasUser: user != "", User: user}
	// Without a password strong lets nobody in, so that what before allows
	// all the same it has allowed without one.
	unverified := before.decide(r, c, false)
	verified := unverified.Code != OK && slices.Contains(before.methods, config.AuthStrong)
	return p.decide(r, c, verified && p.users.sameSecret(before.users, user))
}

// Verified tells whether the method strong, if the service has it, accepts the
// credentials.
func (p *Policy) Verified(c *Creds) bool {
	return slices.Contains(p.methods, config.AuthStrong) && c.user() != "" && p.users.Verify(c.User, c.pass()) == OK
}

// DecideAgain is Decide for a further request of a user whose credentials are
// gone; verified is what Verified has said of them.
func (p *Policy) DecideAgain(r *Request, user string, verified bool) Decision {
	return p.decide(r, &Creds{HasUser: user != "", User: user}, verified)
}

// SameSecret reports whether a user whom before has allowed has the same secret
// here, or needed none.
func (p *Policy) SameSecret(before *Policy, user string) bool {
	return p == before || !slices.Contains(before.methods, config.AuthStrong) || p.users.sameSecret(before.users, user)
}

// SecretDigest returns the digest of the secret that the policy verifies a user by,
// nil when it verifies none.
func (p *Policy) SecretDigest(user string) []byte {
	if !slices.Contains(p.methods, config.AuthStrong) {
		return nil
	}
	return p.users.digest(user)
}

// VerifiedUser is what stands, in Recheck, for the policy that has let a user in by the
// secret of a digest.
func VerifiedUser(user string, digest []byte) *Policy {
	return NewPolicy([]config.AuthMethod{config.AuthStrong}, nil, usersOf(user, digest))
}

// decide is Decide; with verified the user needs no password.
func (p *Policy) decide(r *Request, c *Creds, verified bool) Decision {
	user := c.user()
	d := Decision{Rule: -1, User: user}
	if user == "" {
		d.User = r.User
	}
	for _, m := range p.methods {
		code := p.authenticate(m, user, c, verified)
		if code == OK && m != config.AuthNone {
			verdict, rule := p.list.check(r, listUser(m, user))
			d.NeedAddr, d.Rule = verdict == NeedAddr, rule
			code = codeOf(verdict)
		}
		if code == OK || d.NeedAddr {
			d.Code = OK
			return d
		}
		d.Code = max(d.Code, code)
		if final(m, code) {
			d.Code = code
			return d
		}
	}
	return d
}

// final tells whether a refusal ends the search: a user who was accepted and
// then refused by the list gets no second chance as somebody else.
func final(m config.AuthMethod, code Code) bool {
	return m != config.AuthIPOnly && (code == Denied || code == NoRule)
}

// listUser is the user a method shows to the list.
func listUser(m config.AuthMethod, user string) string {
	if m == config.AuthIPOnly {
		return ""
	}
	return user
}

// authenticate returns OK when the method accepts the credentials, or the user
// when they have been verified before.
func (p *Policy) authenticate(m config.AuthMethod, user string, c *Creds, verified bool) Code {
	switch m {
	case config.AuthNone, config.AuthIPOnly:
		return OK
	case config.AuthUserOnly:
		if user == "" {
			return NoUser
		}
		return OK
	case config.AuthStrong:
		if user == "" {
			return NoUser
		}
		if verified {
			return OK
		}
		return p.users.Verify(user, c.pass())
	}
	return Unsupported
}

func codeOf(v Verdict) Code {
	switch v {
	case Allow, NeedAddr:
		return OK
	case Deny:
		return Denied
	}
	return NoRule
}

// CheckCreds tells, before anything is known about the request, whether
// credentials can be accepted: OK when some method may still allow a request
// with them, else the code that Decide would give. A protocol with an
// authentication step of its own (SOCKS 5, RFC 1929) can refuse there.
func (p *Policy) CheckCreds(c *Creds) Code {
	if p.Anonymous() {
		return OK
	}
	worst := OK
	for _, m := range p.methods {
		if m == config.AuthIPOnly {
			continue
		}
		code := p.authenticate(m, c.user(), c, false)
		if code == OK {
			return OK
		}
		worst = max(worst, code)
	}
	return worst
}

// NeedsCreds tells whether some method looks at the user name, so that a
// client should be asked for it.
func (p *Policy) NeedsCreds() bool {
	return slices.Contains(p.methods, config.AuthUserOnly) || slices.Contains(p.methods, config.AuthStrong)
}

// Anonymous tells whether some request can be allowed without credentials. When
// it is false a SOCKS 5 client that offers only "no authentication" gets 0xFF.
func (p *Policy) Anonymous() bool {
	return slices.Contains(p.methods, config.AuthNone) ||
		slices.Contains(p.methods, config.AuthIPOnly) && p.list.allowsAnonymous()
}

// Trivial tells whether every request is allowed, so that Decide need not be
// called.
func (p *Policy) Trivial() bool {
	switch p.methods[0] {
	case config.AuthNone:
		return true
	case config.AuthIPOnly:
		return p.list.Len() == 0
	}
	return false
}
