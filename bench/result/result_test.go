package result

import (
	"bytes"
	"math"
	"reflect"
	"strings"
	"testing"
)

func TestCSVRoundTrip(t *testing.T) {
	want := []Row{
		{Time: "t", Rep: 1, Attempt: 2, Scenario: "s", Proxy: "p,q", Requests: 7, P50: 1.5, ErrorsBy: "eof=1", Disturbed: true},
		{Rep: 2, Bytes: 1 << 40, ProxyBusy: 0.25},
	}
	var b bytes.Buffer
	w, err := NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range want {
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Read(&b)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Read = %+v, %v; want %+v", got, err, want)
	}
}

func TestReadErrors(t *testing.T) {
	for _, text := range []string{"", "rep\nx\n", "rep,conns\n1\n", "disturbed\nmaybe\n"} {
		if _, err := Read(strings.NewReader(text)); err == nil {
			t.Errorf("Read(%q): no error", text)
		}
	}
	rows, err := Read(strings.NewReader("rep,unknown\n3,x\n"))
	if err != nil || len(rows) != 1 || rows[0].Rep != 3 {
		t.Errorf("an unknown column: %v, %v", rows, err)
	}
}

func TestNewSpread(t *testing.T) {
	for _, tt := range []struct {
		in   []float64
		want Spread
	}{
		{nil, Spread{}},
		{[]float64{math.NaN(), math.Inf(1)}, Spread{}},
		{[]float64{3, 1, 2}, Spread{2, 1, 3, 3}},
		{[]float64{4, 1, 3, 2}, Spread{2.5, 1, 4, 4}},
	} {
		if got := NewSpread(tt.in); got != tt.want {
			t.Errorf("NewSpread(%v) = %+v, want %+v", tt.in, got, tt.want)
		}
	}
}

func TestBest(t *testing.T) {
	rows := []Row{
		{Proxy: "a", Rep: 1, Attempt: 1, Foreign: 0.5, Disturbed: true},
		{Proxy: "b", Rep: 1, Attempt: 1},
		{Proxy: "a", Rep: 1, Attempt: 2, Foreign: 0.1},
	}
	got := Best(rows)
	if len(got) != 2 || got[0].Attempt != 2 || got[1].Proxy != "b" {
		t.Errorf("Best = %+v", got)
	}
}

func TestRatioWithinRepetition(t *testing.T) {
	rows := []Row{
		{Proxy: "ref", Rep: 1, ProxyBusy: 1, Requests: 1}, {Proxy: "x", Rep: 1, ProxyBusy: 2, Requests: 1},
		{Proxy: "ref", Rep: 2, ProxyBusy: 10, Requests: 1}, {Proxy: "x", Rep: 2, ProxyBusy: 30, Requests: 1},
		{Proxy: "x", Rep: 3, ProxyBusy: 99, Requests: 1},
	}
	got := Ratio([]Row{rows[1], rows[3], rows[4]}, rows, "ref", cpuPerUnit)
	if want := (Spread{2.5, 2, 3, 2}); got != want {
		t.Errorf("Ratio = %+v, want %+v", got, want)
	}
}

func TestTables(t *testing.T) {
	var b bytes.Buffer
	rows := []Row{
		{Scenario: "relay-ka-1k", Proxy: "nginx", Rep: 1, Seconds: 2, Requests: 100, ProxyBusy: 1, Pace: "prx"},
		{Scenario: "relay-ka-1k", Proxy: "3proxyd", Rep: 1, Seconds: 2, Requests: 100, ProxyBusy: 0.5, Disturbed: true},
		{Scenario: "relay-idle-9", Proxy: "nginx", Rep: 1, Seconds: 2, Conns: 9},
	}
	if err := Tables(&b, rows, []string{"nginx", "haproxy"}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"relay-ka-1k (1 repetitions", "CPU/nginx", "0.50", "! 1 disturbed", "relay-idle-9"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("rep,proxy\n1,a\n"))
	f.Add([]byte("seconds\n1e9\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		rows, err := Read(bytes.NewReader(text))
		if err != nil || len(rows) > 1000 {
			return
		}
		if err := Tables(&bytes.Buffer{}, rows, []string{"a"}); err != nil {
			t.Error(err)
		}
	})
}
