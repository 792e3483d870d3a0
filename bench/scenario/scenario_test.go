package scenario

import (
	"slices"
	"testing"
)

func TestParse(t *testing.T) {
	tests := []struct {
		name string
		want Scenario
	}{
		{"relay-ka-1k", Scenario{Mode: Relay, Kind: KeepAlive, Conns: 64, Size: 1024}},
		{"relay-ka-1k@1000", Scenario{Mode: Relay, Kind: KeepAlive, Conns: 64, Size: 1024, Rate: 1000}},
		{"http-ka-1m", Scenario{Mode: HTTP, Kind: KeepAlive, Conns: 16, Size: 1 << 20}},
		{"socks-ka-50k-2000", Scenario{Mode: Socks, Kind: KeepAlive, Conns: 2000, Size: 50 << 10}},
		{"connect-ka-2k-50k-2000", Scenario{Mode: Connect, Kind: KeepAlive, Conns: 2000, Size: 50 << 10, Post: 2048}},
		{"relay-ka-1k-10+9000", Scenario{Mode: Relay, Kind: KeepAlive, Conns: 10, Idle: 9000, Size: 1024}},
		{"http-ka-2k-50k-10+1@5", Scenario{Mode: HTTP, Kind: KeepAlive, Conns: 10, Idle: 1, Post: 2048, Size: 50 << 10, Rate: 5}},
		{"relay-ka-100", Scenario{Mode: Relay, Kind: KeepAlive, Conns: 64, Size: 100}},
		{"relay-close-1k-8", Scenario{Mode: Relay, Kind: Close, Conns: 8, Size: 1024}},
		{"relay-stream1", Scenario{Mode: Relay, Kind: Stream, Conns: 1}},
		{"relay-stream16-down", Scenario{Mode: Relay, Kind: Stream, Conns: 16, Down: true}},
		{"relay-mix", Scenario{Mode: Relay, Kind: Mix, Conns: MixConns, AsMany: true}},
		{"http-mix-3k", Scenario{Mode: HTTP, Kind: Mix, Conns: MixConns, AsMany: true, Rate: 3000}},
		{"socks-mix-500", Scenario{Mode: Socks, Kind: Mix, Conns: 500}},
		{"socks-mix-500-2k", Scenario{Mode: Socks, Kind: Mix, Conns: 500, Rate: 2000}},
		{"socks-mix-500@20", Scenario{Mode: Socks, Kind: Mix, Conns: 500, Rate: 20}},
		{"term-ka-1k", Scenario{Mode: Term, Kind: KeepAlive, Conns: 64, Size: 1024}},
		{"connect-idle-5000", Scenario{Mode: Connect, Kind: Idle, Conns: 5000}},
	}
	for _, tt := range tests {
		got, err := Parse(tt.name)
		tt.want.Name = tt.name
		if err != nil || got != tt.want {
			t.Errorf("Parse(%q) = %+v, %v; want %+v", tt.name, got, err, tt.want)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for _, name := range []string{
		"", "relay", "relay-", "ka-1k", "udp-ka-1k", "relay-ka", "relay-ka-0", "relay-ka-1g",
		"relay-ka-1k-2k-3k", "relay-ka-1k-0", "relay-close-1k-2k-3", "relay-stream", "relay-stream0",
		"relay-stream1-left", "relay-idle", "relay-idle-10@5", "relay-ka-1k@", "relay-ka-1k@0",
		"relay-ka-+1k", "relay-ka-1k+5", "relay-ka-1k-+5", "relay-ka-1k-5+", "relay-ka-1k-5+0", "relay-ka-1k-5+60000", "relay-ka-1k-5+5+5", "relay-close-1k-5+5", "relay-idle-5+5", "relay-ka-99999999m", "relay-stream1@10",
		"relay-mix-", "relay-mix-0", "relay-mix-3k-500", "relay-mix-3k@5", "relay-mix-k", "relay-mix-5-5", "relay-mixed",
	} {
		if s, err := Parse(name); err == nil {
			t.Errorf("Parse(%q) = %+v, want an error", name, s)
		}
	}
}

func TestFit(t *testing.T) {
	mix, _ := Parse("relay-mix")
	mix.Active = 8000
	if got := mix.Fit(30_500); got.Conns != 5000 || got.Active != 5000 {
		t.Errorf("Fit = %+v, want 5000 connections", got)
	}
	if got := mix.Fit(1 << 20); got.Conns != MixConns || got.Active != 8000 {
		t.Errorf("Fit = %+v, want all connections", got)
	}
	fixed, _ := Parse("relay-mix-20000")
	if got := fixed.Fit(100); got.Conns != 20000 {
		t.Errorf("Fit = %+v, want what the name says", got)
	}
}

func TestMixSizes(t *testing.T) {
	sizes := MixSizes()
	if !slices.Equal(sizes, MixSizes()) {
		t.Error("the sizes differ from call to call")
	}
	slices.Sort(sizes)
	if m := sizes[len(sizes)/2]; m < 12000 || m > 12600 {
		t.Errorf("median %d, want 12 KB", m)
	}
	if sizes[0] < 256 || sizes[len(sizes)-1] != 8<<20 {
		t.Errorf("sizes from %d to %d, want 256 to 8 MB", sizes[0], sizes[len(sizes)-1])
	}
}

func TestSetsAreValid(t *testing.T) {
	for _, name := range Sets() {
		if _, err := ParseList(name); err != nil {
			t.Errorf("set %s: %v", name, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("relay-ka-2k-50k-2000@100")
	f.Add("relay-ka-1k-10+9000")
	f.Add("http-stream16-down")
	f.Add("socks-idle-1")
	f.Add("socks-mix-100-3k")
	f.Fuzz(func(t *testing.T, name string) {
		s, err := Parse(name)
		if err != nil {
			return
		}
		if s.Conns < 1 || s.Idle < 0 || s.Open() > MaxConns || s.Size > MaxSize || s.Post > MaxPost || s.Rate > MaxRate {
			t.Errorf("Parse(%q) = %+v exceeds the limits", name, s)
		}
	})
}
