package worker

import (
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"3proxyd/internal/sys"
)

// settleTime is how long addresses must not change before they are read anew:
// many often change at once.
const settleTime = 20 * time.Millisecond

// localAddrs knows the addresses of this host. A goroutine follows their
// changes, from when start is called; the loop only reads.
type localAddrs struct {
	set  atomic.Pointer[addrSet]
	once sync.Once
	mu   sync.Mutex
	file *os.File
	over bool
}

// addrSet is a set of addresses and of networks that are local as a whole.
type addrSet struct {
	addrs    map[netip.Addr]bool
	networks []netip.Prefix
}

// has reports whether the host has an address.
func (l *localAddrs) has(a netip.Addr) bool {
	if a.IsLoopback() {
		return true
	}
	set := l.set.Load()
	if set == nil {
		return false
	}
	if set.addrs[a] {
		return true
	}
	for _, p := range set.networks {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// start reads the addresses and follows their changes. Later calls read them
// once more: routes of type local that belong to no interface tell nobody.
func (l *localAddrs) start() {
	l.once.Do(func() {
		f, err := sys.WatchAddresses()
		if err != nil {
			slog.Warn("changes of this host's addresses cannot be followed", "error", err)
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.over {
			f.Close()
			return
		}
		l.file = f
		go l.follow(f)
	})
	l.read()
}

func (l *localAddrs) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	if l.file != nil {
		l.file.Close()
	}
}

// follow reads the addresses anew after each change, until the file is closed.
func (l *localAddrs) follow(f *os.File) {
	buf := make([]byte, 4096)
	for {
		_ = f.SetReadDeadline(time.Time{})
		if !readOn(f, buf) {
			return
		}
		_ = f.SetReadDeadline(time.Now().Add(settleTime))
		for readOn(f, buf) {
		}
		l.read()
	}
}

// readOn reads a message and reports whether there was one. Messages that did
// not fit the socket's queue are as good as one.
func readOn(f *os.File, buf []byte) bool {
	_, err := f.Read(buf)
	return err == nil || errors.Is(err, unix.ENOBUFS)
}

func (l *localAddrs) read() {
	prefixes, err := sys.LocalPrefixes()
	if err != nil {
		slog.Warn("the addresses of this host are not known", "error", err)
		return
	}
	set := &addrSet{addrs: make(map[netip.Addr]bool, len(prefixes))}
	for _, p := range prefixes {
		if p.IsSingleIP() {
			set.addrs[p.Addr()] = true
		} else {
			set.networks = append(set.networks, p)
		}
	}
	l.set.Store(set)
}
