package config

import (
	"fmt"
	"slices"
	"strings"
)

var authMethods = []string{"none", "iponly", "useronly", "strong"}

var laterAuthMethods = []string{"dnsname", "cache", "cacheacl", "radius"}

func runAuth(l *loader, c call) {
	var methods []AuthMethod
	good := true
	for _, w := range c.args {
		switch name := w.text; {
		case slices.Contains(laterAuthMethods, name):
			l.errorf(w.pos, "auth: %s: %s", name, notYet)
			good = false
		case name == "nbname":
			l.errorf(w.pos, "auth: nbname: not supported: it asks Windows for NetBIOS names")
			good = false
		case !slices.Contains(authMethods, name):
			l.errorf(w.pos, "auth: unknown method %s%s; the methods are %s",
				show(name), didYouMean(name, authMethods), strings.Join(authMethods, ", "))
			good = false
		case slices.Contains(methods, AuthMethod(name)):
			l.warnf(w.pos, "auth: %s is named twice", name)
		default:
			methods = append(methods, AuthMethod(name))
		}
	}
	if !good {
		return
	}
	l.warnAfterNone(c, methods)
	l.st.auth = methods
}

// warnAfterNone says that none, which admits everybody, leaves nothing to the
// other methods of its line.
func (l *loader) warnAfterNone(c call, methods []AuthMethod) {
	if len(methods) > 1 && slices.Contains(methods, AuthNone) {
		l.warnf(c.name.pos, "auth: with none among the methods everybody is let in, whatever the others say")
	}
}

// Bounds of names and passwords: what SOCKS 5 can carry (RFC 1929).
const (
	maxUserName = 255
	maxPassword = 255
)

// runUsers reads NAME:TYPE:SECRET words. No message repeats anything after the
// name, since it may be a password.
func runUsers(l *loader, c call) {
	l.usersPos = append(l.usersPos, mark{c.name.pos, l.seq})
	for _, w := range c.args {
		u, err := parseUser(w.text)
		if err != nil {
			l.errorf(w.pos, "users: %v", err)
			continue
		}
		l.addUser(u, w.pos)
	}
}

func (l *loader) addUser(u User, pos Pos) {
	at, ok := l.userIndex[u.Name]
	if !ok {
		l.userIndex[u.Name] = len(l.cfg.Users)
		l.userPos = append(l.userPos, pos)
		l.cfg.Users = append(l.cfg.Users, u)
		return
	}
	l.warnf(pos, "users: %s is also at %s; this one counts", show(u.Name), l.userPos[at])
	l.cfg.Users[at] = u
	l.userPos[at] = pos
}

func parseUser(s string) (User, error) {
	name, rest, ok := strings.Cut(s, ":")
	if !ok {
		return User{}, fmt.Errorf("this word has no \":\"; write NAME:CL:PASSWORD")
	}
	switch {
	case name == "":
		return User{}, fmt.Errorf("this word has no name before the \":\"; write NAME:CL:PASSWORD")
	case len(name) > maxUserName:
		return User{}, fmt.Errorf("%s: a name has at most %d bytes", show(name), maxUserName)
	}
	kind, secret, ok := strings.Cut(rest, ":")
	switch {
	case !ok:
		return User{}, fmt.Errorf("%s: the password type is missing; write NAME:CL:PASSWORD", show(name))
	case kind == "CR" || kind == "NT":
		return User{}, fmt.Errorf("%s: password type %s: %s", show(name), kind, notYet)
	case kind == "":
		return User{}, fmt.Errorf("%s: passwords of the system (no type) are not supported; write NAME:CL:PASSWORD", show(name))
	case kind != "CL":
		return User{}, fmt.Errorf("%s: unknown password type; expected CL (clear text)", show(name))
	case secret == "":
		return User{}, fmt.Errorf("%s: the password is empty", show(name))
	case len(secret) > maxPassword:
		return User{}, fmt.Errorf("%s: a password has at most %d bytes", show(name), maxPassword)
	}
	return User{Name: name, Type: kind, Secret: secret}, nil
}
