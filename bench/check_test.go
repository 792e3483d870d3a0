package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"3proxyd/bench/peer"
	"3proxyd/bench/result"
	"3proxyd/bench/scenario"
)

func TestCountWrk(t *testing.T) {
	const text = "Running 3s test @ http://10.0.1.1:9000/1024\n  48234 requests in 3.10s, 52.31MB read\nRequests/sec:  15559.35\nTransfer/sec:     16.87MB\n"
	if done, rate, err := countWrk(text); err != nil || done != 48234 || rate != 15559.35 {
		t.Errorf("countWrk = %v, %v, %v", done, rate, err)
	}
	if _, _, err := countWrk("unable to connect"); err == nil {
		t.Error("no error for other output")
	}
}

func TestCountIperf(t *testing.T) {
	const text = `{"end":{"sum_received":{"bytes":3000,"bits_per_second":8000}}}`
	if done, rate, err := countIperf(text); err != nil || done != 3000 || rate != 1000 {
		t.Errorf("countIperf = %v, %v, %v", done, rate, err)
	}
	for _, bad := range []string{"", "{}", `{"error":"refused"}`} {
		if _, _, err := countIperf(bad); err == nil {
			t.Errorf("countIperf(%q): no error", bad)
		}
	}
}

func TestPerfClock(t *testing.T) {
	name := filepath.Join(t.TempDir(), "perf")
	if err := os.WriteFile(name, []byte("# started\n\n1234.50,msec,task-clock,1234500000,100.00,0.41,CPUs utilized\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if d, err := perfClock(name); err != nil || d != 1234500*time.Microsecond {
		t.Errorf("perfClock = %v, %v", d, err)
	}
	if err := os.WriteFile(name, []byte("<not counted>,msec,task-clock\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := perfClock(name); err == nil {
		t.Error("no error for what was not counted")
	}
}

func TestReportAgreement(t *testing.T) {
	near := agreement{what: "x", ours: []float64{100, 200}, theirs: []float64{105, 210}}
	far := agreement{what: "y", ours: []float64{100}, theirs: []float64{120}}
	if err := reportAgreement([]agreement{near}, 0.1); err != nil {
		t.Error(err)
	}
	if err := reportAgreement([]agreement{near, far}, 0.1); err == nil {
		t.Error("no error for a difference of 20%")
	}
}

func TestResultsGoOn(t *testing.T) {
	o := &options{out: filepath.Join(t.TempDir(), "sub", "x.csv")}
	nginx, _ := peer.Find("nginx")
	sc, _ := scenario.Parse("relay-ka-1k")
	done := job{rep: 1, subject: &subject{label: "nginx", peer: nginx}, sc: sc}
	failed := job{rep: 2, subject: done.subject, sc: sc}
	first, err := openResults(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []result.Row{
		{Rep: 1, Proxy: "nginx", Scenario: "relay-ka-1k"}, {Rep: 2, Proxy: "nginx", Scenario: "relay-ka-1k", Failed: "x"},
	} {
		if err := first.add(row); err != nil {
			t.Fatal(err)
		}
	}
	first.close()
	again, err := openResults(o)
	if err != nil {
		t.Fatal(err)
	}
	if !again.has("", done) || again.has("", failed) || again.has("1mbit,1ms", done) {
		t.Error("what is done is not told from what is not")
	}
	if err := again.add(result.Row{Rep: 2, Proxy: "nginx", Scenario: "relay-ka-1k"}); err != nil {
		t.Fatal(err)
	}
	again.close()
	rows, err := readCSV(o.out)
	if err != nil || len(rows) != 3 {
		t.Errorf("the file holds %d rows, %v; want 3", len(rows), err)
	}
	if err := os.WriteFile(o.out, []byte("rep,proxy\n1,nginx\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openResults(o); err == nil {
		t.Error("goes on with a file of other columns")
	}
}

func TestCompareCommand(t *testing.T) {
	o := &options{out: filepath.Join(t.TempDir(), "x.csv")}
	r, err := openResults(o)
	if err != nil {
		t.Fatal(err)
	}
	for rep := 1; rep <= 3; rep++ {
		for label, busy := range map[string]float64{"3proxyd-old": 1, "3proxyd": 2} {
			row := result.Row{Rep: rep, Proxy: label, Scenario: "relay-ka-1k", Seconds: 1, Requests: 1000, ProxyBusy: busy}
			if err := r.add(row); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.close()
	for _, tt := range []struct {
		args []string
		bad  bool
	}{
		{[]string{"--a", "3proxyd-old", "--b", "3proxyd", o.out}, true},
		{[]string{"--a", "3proxyd-old", "--b", "3proxyd", "--cpu", "0", o.out}, false},
		{[]string{"--a", "3proxyd", "--b", "3proxyd-old", o.out}, false},
		{[]string{o.out, o.out}, false},
		{[]string{o.out}, true},
		{[]string{"--a", "other", "--b", "3proxyd", o.out}, true},
	} {
		if err := compareCommand(tt.args); (err != nil) != tt.bad {
			t.Errorf("compare %v: %v", tt.args[:len(tt.args)-1], err)
		}
	}
}

func TestSentBy(t *testing.T) {
	text := "Inter-|   Receive  |  Transmit\n face |bytes packets|bytes\n    lo: 1 2 0 0 0 0 0 0 3 4 0 0 0 0 0 0\n  prx1:5 6 0 0 0 0 0 0 77 8 0 0 0 0 0 0\n"
	if n, err := sentBy(text, "prx1"); err != nil || n != 77 {
		t.Errorf("sentBy = %d, %v; want 77", n, err)
	}
	for _, bad := range []string{"", "prx1: 1 2", "prx1: 1 2 3 4 5 6 7 8 x 9"} {
		if n, err := sentBy(bad, "prx1"); err == nil {
			t.Errorf("sentBy(%q) = %d, want an error", bad, n)
		}
	}
}
