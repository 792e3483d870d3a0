package freeport

import (
	"sync"
	"testing"
)

// TestTake takes ports from several goroutines: all differ, and are of the
// block.
func TestTake(t *testing.T) {
	const takers, each = 4, 60
	var wg sync.WaitGroup
	ports := make(chan int, takers*each)
	for range takers {
		wg.Go(func() {
			for range each {
				p, err := Take()
				if err != nil {
					t.Error(err)
					return
				}
				ports <- p
			}
		})
	}
	wg.Wait()
	close(ports)
	seen := map[int]bool{}
	for p := range ports {
		if seen[p] || p <= start || p >= start+blockSize {
			t.Errorf("port %d", p)
		}
		seen[p] = true
	}
}
