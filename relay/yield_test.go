package relay

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"
)

// While the loop waits, or is kept busy, garbage collections of other goroutines
// come to an end, with and without the runtime's signals.
func TestCollectionsEnd(t *testing.T) {
	for _, signals := range []string{"0", "1"} {
		eachEngine(t, func(t *testing.T) {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), childEnv+"=collect-"+testEngine.String(), "GODEBUG=asyncpreemptoff="+signals, "GOMAXPROCS=2")
			out := make(chan error, 1)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			go func() { out <- cmd.Wait() }()
			select {
			case err := <-out:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(limit):
				cmd.Process.Kill()
				<-out
				t.Error("a collection does not end")
			}
		})
	}
}

// childCollect runs a loop and collects garbage beside it: while it has nothing
// to do, and while a timer keeps it at work.
func childCollect(e Engine) int {
	loop, err := NewLoop(Options{Engine: e})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		loop.Run()
		close(done)
	}()
	collect := func() {
		for range 5 {
			runtime.GC()
		}
	}
	collect()
	busy := &restless{l: loop}
	loop.Post(func() { busy.OnTimer(nil) })
	collect()
	loop.Post(loop.Stop)
	<-done
	return 0
}

// restless is a timer that is always due, and posts now and then.
type restless struct {
	l     *Loop
	timer Timer
	n     int
}

func (r *restless) OnTimer(*Timer) {
	if r.n++; r.n%10 == 0 {
		r.l.Post(func() {})
	}
	r.l.SetTimer(&r.timer, 1, r)
}
