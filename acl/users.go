package acl

import (
	"crypto/sha256"
	"crypto/subtle"

	"3proxyd/config"
)

// Code is a result of authentication or authorisation as the access log shows
// it (%E).
type Code int

// The codes of this package; the numbers are those of 3proxy.
const (
	OK            Code = 0
	Denied        Code = 1   // a rule refused the request
	NoRule        Code = 3   // no rule matched
	NoUser        Code = 4   // a user name is needed and there is none
	UnknownUser   Code = 5   // there is no such user
	WrongPassword Code = 6   // the password is not that of the user
	Unsupported   Code = 999 // the kind of secret or method is not known
)

// Users holds the secrets of the users command. It is immutable.
type Users struct {
	byName map[string]userSecret
}

type userSecret struct {
	digest [sha256.Size]byte
	clear  bool
}

// NewUsers builds the table. The first entry of a name counts.
func NewUsers(list []config.User) *Users {
	u := &Users{byName: make(map[string]userSecret, len(list))}
	for _, e := range list {
		if _, taken := u.byName[e.Name]; taken || e.Name == "" {
			continue
		}
		u.byName[e.Name] = userSecret{sha256.Sum256([]byte(e.Secret)), e.Type == "CL"}
	}
	return u
}

// usersOf has one user, with the digest of a secret.
func usersOf(name string, digest []byte) *Users {
	secret := userSecret{clear: true}
	copy(secret.digest[:], digest)
	return &Users{byName: map[string]userSecret{name: secret}}
}

// digest returns that of a user's secret, nil when there is none in clear text.
func (u *Users) digest(name string) []byte {
	if u == nil {
		return nil
	}
	secret, known := u.byName[name]
	if !known || !secret.clear {
		return nil
	}
	return secret.digest[:]
}

// sameSecret says whether both have the user with the same secret.
func (u *Users) sameSecret(other *Users, name string) bool {
	if u == nil || other == nil {
		return false
	}
	mine, ok1 := u.byName[name]
	theirs, ok2 := other.byName[name]
	return ok1 && ok2 && mine == theirs
}

// Verify returns OK, UnknownUser or WrongPassword, or Unsupported for a kind
// of secret other than clear text. It does the same work whether the user
// exists or not and wherever the password differs, so that the time it takes
// tells neither. An empty secret matches only an empty password.
func (u *Users) Verify(name string, pass []byte) Code {
	var secret userSecret
	known := false
	if u != nil {
		secret, known = u.byName[name]
	}
	digest := sha256.Sum256(pass)
	equal := subtle.ConstantTimeCompare(digest[:], secret.digest[:]) == 1
	switch {
	case !known:
		return UnknownUser
	case !secret.clear:
		return Unsupported
	case !equal:
		return WrongPassword
	}
	return OK
}
