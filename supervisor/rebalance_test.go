package supervisor

import (
	"reflect"
	"testing"

	"3proxyd/ipc"
)

func TestPlanShifts(t *testing.T) {
	const mb = 1 << 20
	for name, c := range map[string]struct {
		loads []load
		slack float64
		least int
		want  []shift
	}{
		"even":           {[]load{{5, 0}, {5, 0}}, 0, 1, nil},
		"one more":       {[]load{{6, 0}, {5, 0}}, 0, 1, nil},
		"two more":       {[]load{{7, 0}, {5, 0}}, 0, 1, []shift{{0, 1, ipc.MoveOut{Sessions: 1}}}},
		"all in one":     {[]load{{0, 0}, {90, 0}, {0, 0}}, 0, 1, []shift{{1, 2, ipc.MoveOut{Sessions: 30}}, {1, 0, ipc.MoveOut{Sessions: 30}}}},
		"within slack":   {[]load{{110, 0}, {90, 0}}, 0.2, 8, nil},
		"too few":        {[]load{{6, 0}, {0, 0}}, 0.2, 8, nil},
		"worth it":       {[]load{{100, 0}, {20, 0}}, 0.2, 8, []shift{{0, 1, ipc.MoveOut{Sessions: 40}}}},
		"traffic":        {[]load{{5, 100 * mb}, {5, 20 * mb}}, 0, 1, []shift{{0, 1, ipc.MoveOut{BytesPerSec: 40 * mb}}}},
		"little traffic": {[]load{{5, 1000}, {5, 0}}, 0, 1, nil},
		"both": {[]load{{9, 100 * mb}, {5, 20 * mb}}, 0, 1,
			[]shift{{0, 1, ipc.MoveOut{Sessions: 2, BytesPerSec: 40 * mb}}}},
		"against each other": {[]load{{9, 20 * mb}, {5, 100 * mb}}, 0, 1,
			[]shift{{0, 1, ipc.MoveOut{Sessions: 2}}, {1, 0, ipc.MoveOut{BytesPerSec: 40 * mb}}}},
	} {
		if got := planShifts(c.loads, c.slack, c.least); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
