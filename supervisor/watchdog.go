package supervisor

import (
	"time"

	"golang.org/x/sys/unix"
)

// watchdog replaces workers whose event loops do not turn. It looks at them
// every timing.watch; a worker that is silent for timing.quiet has its sockets
// served by another one as well, after timing.silent it is ended, and its
// slot starts the next.
type watchdog struct {
	d *daemon
	// looked is when the processes were last looked at, notBefore when a
	// silence may be held against a worker again.
	looked, notBefore time.Time
}

// watch runs the watchdog until quit is closed.
func (d *daemon) watch(quit <-chan struct{}) {
	w := &watchdog{d: d, looked: time.Now()}
	every(d.timing.watch, quit, w.look)
}

// look ends the workers that have stalled. When the supervisor itself has not
// run for a while (its control group was frozen, the machine paused) neither
// have they, and they get their whole time from then on.
func (w *watchdog) look(now time.Time) {
	d := w.d
	if now.Sub(w.looked) > d.timing.quiet/2+d.timing.watch {
		w.notBefore = now.Add(d.timing.silent)
	}
	w.looked = now
	if now.Before(w.notBefore) {
		return
	}
	quiet := false
	for _, p := range d.allProcesses() {
		silence := p.silence(d)
		quiet = quiet || silence > d.timing.quiet
		if silence > d.timing.silent {
			p.endHung(d, silence)
		}
	}
	if quiet {
		d.kickAdoption()
	}
}

// endHung has a process that does not answer print its goroutines and ends it.
// The order goes to the thread of its event loop, whose stack would be missing
// otherwise; a stopped process has to go on to obey it.
func (p *process) endHung(d *daemon, silence time.Duration) {
	if !p.hung.CompareAndSwap(false, true) {
		return
	}
	d.logf("worker %d (pid %d) has not answered for %v: it prints its goroutines and is ended",
		p.slot.index, p.pid, silence.Round(time.Second))
	thread := int(p.loopThread.Load())
	if thread == 0 || unix.Tgkill(p.pid, thread, unix.SIGABRT) != nil {
		_ = p.proc.Signal(unix.SIGABRT)
	}
	_ = p.proc.Signal(unix.SIGCONT)
	p.killAfter(d.timing.dump)
}
