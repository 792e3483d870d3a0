package supervisor

import (
	"reflect"
	"testing"

	"3proxyd/ipc"
)

func TestPlanSessions(t *testing.T) {
	for name, c := range map[string]struct {
		sessions []int
		slack    float64
		least    int
		want     []shift
	}{
		"even":         {[]int{5, 5}, 0, 1, nil},
		"one more":     {[]int{6, 5}, 0, 1, nil},
		"two more":     {[]int{7, 5}, 0, 1, []shift{{0, 1, ipc.MoveOut{Sessions: 1}}}},
		"all in one":   {[]int{0, 90, 0}, 0, 1, []shift{{1, 2, ipc.MoveOut{Sessions: 30}}, {1, 0, ipc.MoveOut{Sessions: 30}}}},
		"two to two":   {[]int{30, 30, 10, 10}, 0, 1, []shift{{0, 3, ipc.MoveOut{Sessions: 10}}, {1, 2, ipc.MoveOut{Sessions: 10}}}},
		"within slack": {[]int{110, 90}, 0.2, 8, nil},
		"too few":      {[]int{6, 0}, 0.2, 8, nil},
		"worth it":     {[]int{100, 20}, 0.2, 8, []shift{{0, 1, ipc.MoveOut{Sessions: 40}}}},
		"none":         {[]int{0, 0}, 0, 1, nil},
	} {
		var loads []load
		for _, n := range c.sessions {
			loads = append(loads, load{sessions: n})
		}
		if got := planSessions(loads, c.slack, c.least); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestPlanTraffic(t *testing.T) {
	const mb = 1 << 20
	for name, c := range map[string]struct {
		rates []uint64
		want  []shift
	}{
		"much":       {[]uint64{100 * mb, 20 * mb}, []shift{{0, 1, ipc.MoveOut{BytesPerSec: 40 * mb}}}},
		"little":     {[]uint64{1000, 0}, nil},
		"nearly":     {[]uint64{105 * mb, 100 * mb}, nil},
		"the second": {[]uint64{0, 20 * mb}, []shift{{1, 0, ipc.MoveOut{BytesPerSec: 10 * mb}}}},
	} {
		var loads []load
		for _, n := range c.rates {
			loads = append(loads, load{rate: n})
		}
		if got := planTraffic(loads, 0); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
