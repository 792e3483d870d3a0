package relay

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// wheelModel checks the wheel against a list of what is due when.
type wheelModel struct {
	t      *testing.T
	l      *Loop
	timers []*modelTimer
	fired  int
	onFire func(m *modelTimer)
}

type modelTimer struct {
	Timer
	w    *wheelModel
	due  int64 // -1 when unset
	name int
}

func (m *modelTimer) OnTimer(t *Timer) {
	w := m.w
	if t != &m.Timer {
		w.t.Fatalf("timer %d: called with another timer", m.name)
	}
	if t.Set() {
		w.t.Fatalf("timer %d: still set in its call", m.name)
	}
	if m.due < 0 || m.due > w.l.nowMS {
		w.t.Fatalf("timer %d: due at %d, called at %d", m.name, m.due, w.l.nowMS)
	}
	m.due = -1
	w.fired++
	if w.onFire != nil {
		w.onFire(m)
	}
}

func (m *modelTimer) set(delay int64) {
	m.due = m.w.l.nowMS + delay
	m.w.l.SetTimer(&m.Timer, delay, m)
}

func (m *modelTimer) stop() {
	m.due = -1
	m.w.l.StopTimer(&m.Timer)
}

func newWheelModel(t *testing.T, timers int) *wheelModel {
	l := &Loop{}
	l.wheel.init()
	w := &wheelModel{t: t, l: l}
	for i := range timers {
		w.timers = append(w.timers, &modelTimer{w: w, due: -1, name: i})
	}
	return w
}

// first returns when the first timer is due, or -1.
func (w *wheelModel) first() int64 {
	first := int64(-1)
	for _, m := range w.timers {
		if m.due >= 0 && (first < 0 || m.due < first) {
			first = m.due
		}
	}
	return first
}

func (w *wheelModel) advance(now int64) {
	w.l.nowMS = now
	w.l.wheel.advance(now)
	w.check()
}

// check holds the wheel against the list: nothing is overdue by more than a
// tick, and the loop would not sleep past the first timer.
func (w *wheelModel) check() {
	w.t.Helper()
	now, next := w.l.nowMS, w.l.wheel.next()
	for _, m := range w.timers {
		if m.Set() != (m.due >= 0) {
			w.t.Fatalf("timer %d: Set() = %v, due %d", m.name, m.Set(), m.due)
		}
		if m.due >= 0 && m.due <= now-nearTickMS {
			w.t.Fatalf("timer %d: due at %d, not called at %d", m.name, m.due, now)
		}
	}
	first := w.first()
	if first < 0 {
		return
	}
	if next < 0 || next > max(first, now)+nearTickMS {
		w.t.Fatalf("first timer is due at %d, the wheel sleeps until %d (now %d)", first, next, now)
	}
}

// delays are those at the edges of the two levels and random ones of each size.
func randomDelay(r *rand.Rand) int64 {
	edges := []int64{0, 1, nearTickMS, nearReach, nearTickMS * nearSlots, farTickMS, farTickMS * farSlots, 2 * farTickMS * farSlots}
	switch r.IntN(6) {
	case 0:
		return max(0, edges[r.IntN(len(edges))]+r.Int64N(2*nearTickMS+1)-nearTickMS)
	case 1:
		return r.Int64N(100)
	case 2:
		return r.Int64N(nearReach)
	case 3:
		return r.Int64N(200_000)
	case 4:
		return r.Int64N(3 * farTickMS * farSlots)
	}
	return 1000 * r.Int64N(120)
}

func randomPause(r *rand.Rand, w *wheelModel) int64 {
	switch r.IntN(8) {
	case 0:
		return 0
	case 1, 2:
		return r.Int64N(5 * nearTickMS)
	case 3:
		return r.Int64N(nearReach * 2)
	case 4:
		return r.Int64N(farTickMS * farSlots * 2)
	}
	// The sleep that the loop would take.
	if next := w.l.wheel.next(); next > w.l.nowMS {
		return next - w.l.nowMS
	}
	return 1
}

func TestWheelAgainstList(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := newWheelModel(t, 40)
		w.l.nowMS = r.Int64N(100_000)
		w.onFire = func(m *modelTimer) {
			switch r.IntN(4) {
			case 0:
				m.set(randomDelay(r))
			case 1:
				w.timers[r.IntN(len(w.timers))].stop()
			case 2:
				w.timers[r.IntN(len(w.timers))].set(randomDelay(r))
			}
		}
		for range 1500 {
			// As in a turn of the loop, the clock has moved on when timers are
			// set, and the wheel follows at the end.
			w.l.nowMS += randomPause(r, w)
			for range r.IntN(4) {
				m := w.timers[r.IntN(len(w.timers))]
				if r.IntN(3) == 0 {
					m.stop()
				} else {
					m.set(randomDelay(r))
				}
			}
			w.advance(w.l.nowMS)
		}
		if w.fired == 0 {
			t.Fatalf("seed %d: no timer was called", seed)
		}
	}
}

// A timer that is beyond the ring by whole turns of it must not keep the wheel
// busy: each of these delays has the slot that is being emptied as its
// remainder.
func TestWheelBeyondTheRing(t *testing.T) {
	for _, pause := range []int64{0, 5, 31, 5_000, 40_000, 3_000_000} {
		for _, delay := range []int64{nearReach, nearReach - 1, nearReach + 1, nearTickMS * nearSlots, 30_000, farTickMS * farSlots, farTickMS*farSlots - 1, 3_600_000, 86_400_000} {
			w := newWheelModel(t, 1)
			w.advance(64)
			w.l.nowMS += pause
			w.timers[0].set(delay)
			due := w.timers[0].due
			w.advance(w.l.nowMS)
			for wakes := 0; w.fired == 0; wakes++ {
				if wakes > int(delay/1_000_000)+6 {
					t.Fatalf("pause %d, delay %d: woken %d times before the timer", pause, delay, wakes)
				}
				next := w.l.wheel.next()
				if next <= w.l.nowMS {
					t.Fatalf("pause %d, delay %d: next() = %d at %d: the loop would spin", pause, delay, next, w.l.nowMS)
				}
				w.advance(next)
			}
			if late := w.l.nowMS - due; late < 0 || late >= nearTickMS {
				t.Errorf("pause %d, delay %d: called %d ms late", pause, delay, late)
			}
		}
	}
}

// A timer set to 0 in its own call waits for the next tick and does not hold up
// the turn.
func TestWheelSetInItsCall(t *testing.T) {
	w := newWheelModel(t, 3)
	w.onFire = func(m *modelTimer) { m.set(0) }
	for _, m := range w.timers {
		m.set(0)
	}
	for i := range 10 {
		w.advance(int64(i+1) * nearTickMS)
	}
	if w.fired < 20 || w.fired > 33 {
		t.Errorf("3 timers of every tick were called %d times in 10 ticks", w.fired)
	}
}

func TestWheelStopsNeighbours(t *testing.T) {
	w := newWheelModel(t, 20)
	w.onFire = func(*modelTimer) {
		for _, m := range w.timers {
			m.stop()
		}
	}
	for _, m := range w.timers {
		m.set(100)
	}
	w.advance(1000)
	if w.fired != 1 {
		t.Errorf("%d timers called, 1 wanted: the first stops the rest", w.fired)
	}
	w.advance(100_000)
	if w.fired != 1 || w.l.wheel.next() >= 0 {
		t.Errorf("stopped timers: %d called, next() = %d", w.fired, w.l.wheel.next())
	}
}

func TestWheelMovesRunningTimer(t *testing.T) {
	w := newWheelModel(t, 1)
	m := w.timers[0]
	w.advance(1024)
	for _, delay := range []int64{100, 50_000, 10, 3_600_000, 64} {
		m.set(delay)
	}
	w.advance(1152)
	if w.fired != 1 {
		t.Fatalf("moved timer called %d times, 1 wanted", w.fired)
	}
	m.set(-500)
	w.advance(1184)
	if w.fired != 2 {
		t.Fatal("a timer in the past is not called at the next tick")
	}
}

// Idle sessions keep a long timer each: they must not wake the loop often.
func TestWheelWakesSeldom(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	w := newWheelModel(t, 5000)
	var times []int64
	for _, m := range w.timers {
		times = append(times, 1_800_000+r.Int64N(1000))
		m.set(times[len(times)-1])
	}
	wakes := 0
	for w.l.wheel.next() < slices.Min(times)-2*farTickMS {
		w.l.nowMS = w.l.wheel.next()
		w.l.wheel.advance(w.l.nowMS)
		wakes++
	}
	if wakes > 2 {
		t.Errorf("5000 timers of half an hour woke the loop %d times before", wakes)
	}
}

func BenchmarkTimerMove(b *testing.B) {
	l := &Loop{}
	l.wheel.init()
	var t Timer
	m := &modelTimer{}
	for b.Loop() {
		l.SetTimer(&t, 60_000, m)
	}
}
