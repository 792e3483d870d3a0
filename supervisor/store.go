package supervisor

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"3proxyd/config"
	"3proxyd/systemd"
)

// store is what the service manager keeps for a successor of this process: the
// sockets opened here, so that nothing in their queues is lost with it. It is
// guarded by daemon.change.
type store struct {
	// identities tell by name which descriptor is kept.
	identities map[string]uint64
}

// adopted notes what an earlier supervisor has stored.
func (s *store) adopted(sockets []systemd.Socket) {
	s.identities = map[string]uint64{}
	for _, socket := range sockets {
		if stored(socket) {
			s.identities[socket.Name] = socket.Cookie
		}
	}
}

// syncStore makes the store hold the sockets of the generation in force and
// the control socket, and nothing else.
func (d *daemon) syncStore() {
	if !systemd.Managed() {
		return
	}
	wanted := d.worthKeeping()
	for _, name := range slices.Sorted(maps.Keys(d.store.identities)) {
		fd, keep := wanted[name]
		if !keep || identity(fd) != d.store.identities[name] {
			d.unstore(name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if _, has := d.store.identities[name]; has {
			continue
		}
		fd := wanted[name]
		if err := systemd.NotifyFiles("FDSTORE=1\nFDNAME="+name, fd); err != nil {
			d.logf("warning: sockets cannot be stored, a crash of this process will lose connections that wait to be accepted: %v", err)
			return
		}
		d.store.identities[name] = identity(fd)
	}
}

func (d *daemon) unstore(name string) {
	delete(d.store.identities, name)
	if err := systemd.Notify("FDSTOREREMOVE=1", "FDNAME="+name); err != nil {
		d.logf("warning: a socket cannot be removed from the store: %v", err)
	}
}

// emptyStore gives everything up: nobody is to succeed this process.
func (d *daemon) emptyStore() {
	for _, name := range slices.Sorted(maps.Keys(d.store.identities)) {
		d.unstore(name)
	}
}

// worthKeeping returns the descriptors to be stored by their names. The manager
// keeps those of socket units by itself.
func (d *daemon) worthKeeping() map[string]int {
	wanted := map[string]int{}
	for _, l := range d.inForce().listeners {
		if l.kept {
			continue
		}
		for i, fd := range l.sockets() {
			wanted[storeName(l.key, l.shared, i)] = fd
		}
	}
	wanted[controlStoreName] = d.control.fd
	wanted[countersStoreName] = d.shm.FD()
	return wanted
}

// storeShortage says what the store lacks; its size is known from systemd 254
// on.
func (d *daemon) storeShortage() string {
	size, err := strconv.Atoi(os.Getenv("FDSTORE"))
	if err != nil || !systemd.Managed() {
		return ""
	}
	if need := len(d.worthKeeping()); size < need {
		return fmt.Sprintf("%d sockets are to be stored, but there is room for %d: set FileDescriptorStoreMax=%d in the unit", need, size, need)
	}
	return ""
}

// controlStoreName is the name of the control socket in the store.
const controlStoreName = config.StoredPrefix + "control"

// storeName is the name of a socket in the store: it says the listener's
// address and the slot, or the number among sockets shared by all workers. A
// name has no colons (FDNAME=, sd_notify(3)): "_" stands for one.
func storeName(key string, shared bool, index int) string {
	kind := "slot"
	if shared {
		kind = "shared"
	}
	return fmt.Sprintf("%s%s/%s-%d", config.StoredPrefix, storeKey(key), kind, index)
}

// maxStoreKey leaves room for the rest of a name of at most 255 bytes.
const maxStoreKey = 220

func storeKey(key string) string {
	var b strings.Builder
	for i := range len(key) {
		c := key[i]
		switch {
		case c == ':':
			b.WriteByte('_')
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("./@[]-", c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	if b.Len() <= maxStoreKey {
		return b.String()
	}
	sum := sha256.Sum256([]byte(key))
	return "sha256-" + hex.EncodeToString(sum[:])
}

// slotOf returns the index in the name of a stored socket, 0 in any other.
func slotOf(s systemd.Socket) int {
	if !stored(s) {
		return 0
	}
	n, err := strconv.Atoi(s.Name[strings.LastIndexByte(s.Name, '-')+1:])
	if err != nil {
		return 0
	}
	return n
}

// identity tells whether two descriptors are the same socket or memfd, as
// systemd.Socket.Cookie does.
func identity(fd int) uint64 {
	s, err := systemd.Describe(fd, "")
	if err != nil {
		return 0
	}
	return s.Cookie
}
