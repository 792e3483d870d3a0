package relay

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestPipePool(t *testing.T) {
	before := countFDs()
	p := pipePool{max: 2, size: 256 << 10}
	a, b := p.get(0), p.get(0)
	if a == nil || b == nil || p.get(0) != nil {
		t.Fatalf("pool of 2 gave %v %v and more", a, b)
	}
	if p.open != 2 || p.idle != 0 || countFDs() != before+4 {
		t.Fatalf("open %d idle %d", p.open, p.idle)
	}
	if size, err := unix.FcntlInt(uintptr(a.r), unix.F_GETPIPE_SZ, 0); err != nil || size != a.size || size != 256<<10 {
		t.Errorf("pipe of %d bytes, kernel says %d, %v", a.size, size, err)
	}
	p.put(a)
	if p.idle != 1 || p.get(0) != a {
		t.Error("an idle pipe is not reused")
	}
	p.put(a)
	p.put(b)
	p.trim(1)
	if p.open != 1 || p.idle != 1 || countFDs() != before+2 {
		t.Errorf("trim(1): open %d idle %d", p.open, p.idle)
	}
	p.trim(0)
	if p.open != 0 || p.idle != 0 || p.free != nil || countFDs() != before {
		t.Errorf("trim(0): open %d idle %d", p.open, p.idle)
	}
	q := p.get(0)
	p.drop(q)
	if p.open != 0 || countFDs() != before {
		t.Error("a dropped pipe is still open")
	}
}

// A kernel that refuses pipes is left alone for a while.
func TestPipePoolRefused(t *testing.T) {
	var old unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	p := pipePool{max: 2}
	low := old
	low.Cur = 3
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &low))
	refused := p.get(1000)
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old))
	if refused != nil || p.open != 0 {
		t.Fatal("a pipe beyond the limit of descriptors")
	}
	if p.get(1000+pipeRetryMS-1) != nil {
		t.Error("the kernel was asked again at once")
	}
	q := p.get(1000 + pipeRetryMS)
	if q == nil {
		t.Fatal("the kernel was not asked again")
	}
	p.drop(q)
}

// Small pipes, as a user over its budget gets them, are not used.
func TestPipePoolTooSmall(t *testing.T) {
	before := countFDs()
	p := pipePool{max: 2, size: 8192}
	if p.get(0) != nil || p.open != 0 || countFDs() != before {
		t.Error("a pipe of 8 KB was accepted, or has leaked")
	}
}
