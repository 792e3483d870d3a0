package plots

import (
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"3proxyd/bench/result"
)

func TestDraw(t *testing.T) {
	var rows []result.Row
	for _, proxy := range []struct{ name, group string }{{"3proxyd", "splice"}, {"nginx", "copy"}, {"direct", ""}} {
		for rep := 1; rep <= 2; rep++ {
			rows = append(rows,
				result.Row{Rep: rep, Scenario: "relay-ka-1k", Proxy: proxy.name, Group: proxy.group, Seconds: 1, Requests: int64(900 + rep), ProxyBusy: 1, P50: 1000, P99: 5000, Conns: 64},
				result.Row{Rep: rep, Scenario: "relay-stream1", Proxy: proxy.name, Group: proxy.group, Seconds: 1, Bytes: 1 << 30, ProxyBusy: 1, Conns: 1},
				result.Row{Rep: rep, Scenario: "relay-idle-2000", Proxy: proxy.name, Group: proxy.group, Seconds: 1, MemoryPeak: 5 << 20, Conns: 2000, Link: "20mbit,5ms,0.5%"},
			)
		}
	}
	rows = append(rows, result.Row{Rep: 1, Scenario: "http-ka-1k", Proxy: "squid", Group: "copy", Failed: "it ended"})
	dir := filepath.Join(t.TempDir(), "pictures")
	files, err := Draw(dir, rows, []string{"nginx"})
	if err != nil {
		t.Fatal(err)
	}
	want := "throughput-relay.svg cpu-relay.svg latency-relay.svg memory-relay-20mbit_5ms_0.5pc.svg"
	if got := strings.Join(files, " "); got != want {
		t.Fatalf("pictures %s, want %s", got, want)
	}
	for _, name := range files {
		checkSVG(t, filepath.Join(dir, name))
		checkPNG(t, filepath.Join(dir, strings.TrimSuffix(name, ".svg")+".png"))
	}
}

func checkSVG(t *testing.T, name string) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d := xml.NewDecoder(f)
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

func checkPNG(t *testing.T, name string) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if c, err := png.DecodeConfig(f); err != nil || c.Width < 300 || c.Height < 100 {
		t.Errorf("%s: %+v, %v", name, c, err)
	}
}

func TestFewTicks(t *testing.T) {
	for _, high := range []float64{1e-6, 0.013, 1, 7.7, 150, 4.4e6} {
		ticks := fewTicks{}.Ticks(0, high)
		if len(ticks) < 2 || len(ticks) > 6 {
			t.Errorf("%d ticks up to %v", len(ticks), high)
		}
	}
}
