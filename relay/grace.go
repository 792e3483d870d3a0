package relay

// Grace lets a direction of a connection rest when it brings many small pieces:
// what comes meanwhile is read at once afterwards. With Reads reads within a
// second that bring less than Traffic bytes on average, the next is made DelayMS
// milliseconds later. The zero value never rests.
type Grace struct {
	Traffic int32
	Reads   int32
	DelayMS int64
}

// graceSpanMS is the time over which reads are counted, in milliseconds.
const graceSpanMS = 1000

// rest is what a flow with a Grace keeps.
type rest struct {
	flow    *Flow
	timer   Timer
	since   int64 // when the present count began
	reads   int32
	bytes   int64
	resting bool
	next    *rest // of those that are not in use
}

func (l *Loop) takeRest(f *Flow) *rest {
	r := l.rests
	if r == nil {
		r = &rest{}
	} else {
		l.rests = r.next
	}
	r.flow, r.next, r.since = f, nil, l.nowMS
	return r
}

func (l *Loop) freeRest(r *rest) {
	l.StopTimer(&r.timer)
	r.flow, r.reads, r.bytes, r.resting = nil, 0, 0, false
	r.next = l.rests
	l.rests = r
}

// resting reports whether the next read has to wait.
func (f *Flow) resting() bool { return f.rest != nil && f.rest.resting }

// note counts a read of n bytes and begins a rest if they have become many and
// small.
func (r *rest) note(n int) {
	l, g := r.flow.src.loop, &r.flow.policy.Grace
	if l.nowMS-r.since >= graceSpanMS {
		r.since, r.reads, r.bytes = l.nowMS, 0, 0
	}
	r.reads++
	r.bytes += int64(n)
	if r.reads >= g.Reads && r.bytes < int64(g.Traffic)*int64(r.reads) {
		r.resting = true
		l.SetTimer(&r.timer, g.DelayMS, r)
	}
}

// OnTimer ends the rest.
func (r *rest) OnTimer(*Timer) {
	r.resting = false
	r.flow.resume()
}
