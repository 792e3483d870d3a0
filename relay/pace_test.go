package relay

import "testing"

func TestPace(t *testing.T) {
	type step struct {
		ms    int64 // how long
		wakes int   // evenly spread
		brisk bool  // at the end
	}
	for name, steps := range map[string][]step{
		"nothing":             {{5000, 0, false}},
		"seldom":              {{5000, 100, false}},
		"often":               {{1000, 50, true}, {5000, 5000, true}},
		"at once":             {{10, briskWakes + 1, true}},
		"often, then nothing": {{3000, 3000, true}, {50, 1, true}, {2200, 20, false}},
		"often, then seldom":  {{3000, 3000, true}, {2200, 22, false}},
		"after a long wait":   {{1000, 20, false}, {100000, 1, false}, {900, 30, false}, {900, 900, true}},
	} {
		t.Run(name, func(t *testing.T) {
			var p pace
			var now int64
			for i, s := range steps {
				for k := range s.wakes {
					p.brisk(now + s.ms*int64(k)/int64(s.wakes))
					p.wakes++
				}
				now += s.ms
				if got := p.brisk(now); got != s.brisk {
					t.Errorf("step %d: %v", i, got)
				}
			}
		})
	}
}
