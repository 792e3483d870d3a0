package config

import (
	"regexp"
	"strings"
)

// secretMark stands for what is not shown.
const secretMark = "***"

// credential matches the beginning of a word of the users command, up to the
// password.
var credential = regexp.MustCompile(`^[^:\s]*:(CL|CR|NT):`)

// hideSecret replaces what may be a password in a word that may have slipped
// from a users command: what follows the type, or, without a type, the ":",
// unless the word is an address, a time or a path.
func hideSecret(s string) string {
	if head := credential.FindString(s); head != "" {
		return head + secretMark
	}
	name, rest, ok := strings.Cut(s, ":")
	if !ok || rest == "" || isPlace(s, name) {
		return s
	}
	return name + ":" + secretMark
}

// isPlace tells an address, a time or a path from NAME:PASSWORD; name is what
// stands before the first ":". A single ":" behind letters is never taken for
// an address.
func isPlace(s, name string) bool {
	if strings.HasPrefix(s, "/") || strings.HasPrefix(s, "unix:") {
		return true
	}
	address, _, _ := strings.Cut(s, "%") // the rest is a zone
	if strings.Trim(address, "0123456789abcdefABCDEF:.-/[]") != "" {
		return false
	}
	return strings.Count(address, ":") > 1 || strings.HasPrefix(s, "[") || strings.Contains(name, ".")
}

// pathCommands take words that may look like anything and that no message
// shows in part.
var pathCommands = map[string]bool{
	"users": true, "log": true, "logformat": true, "include": true, "pidfile": true, "control": true,
}

// refuseCredentials reports words of the users command in another one, which
// would take them apart and show the parts in its messages.
func (l *loader) refuseCredentials(c call) bool {
	if pathCommands[c.name.text] {
		return false
	}
	for _, w := range c.args {
		if credential.MatchString(w.text) {
			l.errorf(w.pos, "%s: %s is a word of the users command, which needs a line of its own", c.name.text, show(w.text))
			return true
		}
	}
	return false
}
