package scenario

import "testing"

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
		{"relay-ka-100", Scenario{Mode: Relay, Kind: KeepAlive, Conns: 64, Size: 100}},
		{"relay-close-1k-8", Scenario{Mode: Relay, Kind: Close, Conns: 8, Size: 1024}},
		{"relay-stream1", Scenario{Mode: Relay, Kind: Stream, Conns: 1}},
		{"relay-stream16-down", Scenario{Mode: Relay, Kind: Stream, Conns: 16, Down: true}},
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
		"relay-ka-+1k", "relay-ka-99999999m", "relay-stream1@10",
	} {
		if s, err := Parse(name); err == nil {
			t.Errorf("Parse(%q) = %+v, want an error", name, s)
		}
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
	f.Add("http-stream16-down")
	f.Add("socks-idle-1")
	f.Fuzz(func(t *testing.T, name string) {
		s, err := Parse(name)
		if err != nil {
			return
		}
		if s.Conns < 1 || s.Conns > MaxConns || s.Size > MaxSize || s.Post > MaxPost || s.Rate > MaxRate {
			t.Errorf("Parse(%q) = %+v exceeds the limits", name, s)
		}
	})
}
