package worker

import (
	"slices"
	"testing"
)

func TestPickTraffic(t *testing.T) {
	list := []traffic{{1, 0}, {2, 50}, {3, 100}, {4, 10}, {5, 0}}
	for name, c := range map[string]struct {
		n     int
		bytes uint64
		want  []uint64
	}{
		"quiet ones":     {2, 0, []uint64{1, 5}},
		"all":            {9, 0, []uint64{3, 2, 4, 1, 5}},
		"traffic":        {0, 60, []uint64{2, 4}},
		"much traffic":   {0, 1000, []uint64{3, 2}},
		"little traffic": {0, 5, nil},
		"no small fry":   {0, 101 * 32, nil},
	} {
		if got := pickTraffic(slices.Clone(list), c.n, c.bytes); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
