package relay

import "math/bits"

// The timing wheel has two levels. Near timers lie in a slot of nearTickMS and
// are called when it is passed. Timers further than the near level reaches lie
// in a slot of farTickMS and move to the near level when that slot begins, so
// that thousands of long timers wake the loop every few seconds at most.
const (
	nearTickMS = 32
	nearSlots  = 1024
	farTickMS  = 8192
	farSlots   = 256
	nearReach  = nearTickMS * (nearSlots - 1)
)

// TimerHandler is told when a Timer is due.
type TimerHandler interface {
	OnTimer(t *Timer)
}

// Timer is one place in the loop's timing wheel. The zero value is unset. It
// is embedded in what it times and must not be copied while set.
type Timer struct {
	next, prev *Timer
	at         int64
	h          TimerHandler
}

// Set reports whether the timer is running.
func (t *Timer) Set() bool { return t.next != nil }

// SetTimer has h called in delay milliseconds or up to nearTickMS later; a
// timer that is running is moved.
func (l *Loop) SetTimer(t *Timer, delay int64, h TimerHandler) {
	l.StopTimer(t)
	t.at, t.h = l.nowMS+delay, h
	l.wheel.add(t, l.nowMS)
}

// StopTimer stops a timer; stopping one that is unset does nothing.
func (l *Loop) StopTimer(t *Timer) {
	if t.next != nil {
		t.unlink()
	}
}

func (t *Timer) unlink() {
	t.prev.next, t.next.prev = t.next, t.prev
	t.next, t.prev = nil, nil
}

// insertBefore links t in front of head in its ring.
func (t *Timer) insertBefore(head *Timer) {
	t.prev, t.next = head.prev, head
	head.prev.next, head.prev = t, t
}

type wheel struct {
	near, far level
}

func (w *wheel) init() {
	w.near.init(nearSlots, nearTickMS)
	w.far.init(farSlots, farTickMS)
}

func (w *wheel) add(t *Timer, now int64) {
	if t.at-now <= nearReach {
		w.near.add(t, (t.at+nearTickMS-1)/nearTickMS)
		return
	}
	w.far.add(t, t.at/farTickMS)
}

// advance moves far timers whose slot begins to the near level and calls the
// near ones that are due.
func (w *wheel) advance(now int64) {
	for t := w.far.take(now); t != nil; t = w.far.take(now) {
		w.add(t, now)
	}
	for t := w.near.take(now); t != nil; t = w.near.take(now) {
		if t.at > now {
			w.add(t, now)
			continue
		}
		t.h.OnTimer(t)
	}
}

// next returns when the next slot that may hold timers is passed, in
// milliseconds of the loop's clock, or -1. A slot whose timers were all stopped
// costs one wake-up for nothing.
func (w *wheel) next() int64 {
	near, far := w.near.next(), w.far.next()
	if near < 0 || far >= 0 && far < near {
		return far
	}
	return near
}

// level is a ring of slots, each a ring of timers. done is the last tick whose
// slot has begun to be emptied; used has a bit for each slot that may hold
// timers.
type level struct {
	slots []Timer
	used  []uint64
	tick  int64
	done  int64
}

func (v *level) init(slots int, tick int64) {
	v.slots = make([]Timer, slots)
	v.used = make([]uint64, slots/64)
	v.tick = tick
	for i := range v.slots {
		v.slots[i].next, v.slots[i].prev = &v.slots[i], &v.slots[i]
	}
}

// add puts t into the slot of tick. A tick beyond the ring gets the ring's last
// slot, to be added again from there: by its own remainder it could fall into
// the slot that is being emptied, and never leave it.
func (v *level) add(t *Timer, tick int64) {
	slots := int64(len(v.slots))
	i := min(max(tick, v.done+1), v.done+slots-1) % slots
	t.insertBefore(&v.slots[i])
	v.used[i/64] |= 1 << (i % 64)
}

// take unlinks and returns a timer of a slot that has been passed at now, or
// nil. Timers added meanwhile land in later slots, so that every call of take
// comes nearer to the end.
func (v *level) take(now int64) *Timer {
	target := now / v.tick
	if span := int64(len(v.slots)); target-v.done > span {
		v.done = target - span
	}
	for {
		i := v.done % int64(len(v.slots))
		if head := &v.slots[i]; head.next != head {
			t := head.next
			t.unlink()
			return t
		}
		v.used[i/64] &^= 1 << (i % 64)
		if v.done >= target {
			return nil
		}
		v.done++
	}
}

func (v *level) next() int64 {
	slots := int64(len(v.slots))
	for n := int64(1); n <= slots; {
		i := (v.done + n) % slots
		word := v.used[i/64] >> (i % 64)
		if word == 0 {
			n += 64 - i%64
			continue
		}
		n += int64(bits.TrailingZeros64(word))
		if n > slots {
			break
		}
		return (v.done + n) * v.tick
	}
	return -1
}
