package supervisor

import "time"

// every calls f with the time once in each interval until quit is closed. A
// call that takes longer than the interval delays the next.
func every(interval time.Duration, quit <-chan struct{}, f func(now time.Time)) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-quit:
			return
		case <-tick.C:
			f(time.Now())
		}
	}
}
