package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"3proxyd/bench/load"
	"3proxyd/bench/peer"
	"3proxyd/bench/result"
	"3proxyd/bench/scenario"
)

// TestMain lets the test binary be a role of the tool, or a peer.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == envoyName {
		if err := fakeEnvoy(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) > 1 && slices.Contains([]string{cmdOrigin, cmdLoad, cmdWire, cmdClean, "run"}, os.Args[1]) {
		main()
		return
	}
	os.Exit(m.Run())
}

// here starts processes in the test's own place.
type here struct{}

func (here) Start(cmd *exec.Cmd) error { return cmd.Start() }

func freePort(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// startTestOrigin starts an origin that verifies uploads.
func startTestOrigin(t *testing.T, ctx context.Context) (*child, netip.AddrPort) {
	t.Helper()
	addr := freePort(t)
	org, err := startSelf(here{}, cmdOrigin, addr.String(), "verify")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(org.end)
	if _, err := org.hear(ctx, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	return org, addr
}

// measureLoad runs a scenario against an origin for a moment.
func measureLoad(t *testing.T, ctx context.Context, name string, addr netip.AddrPort) *load.Result {
	t.Helper()
	sc, err := scenario.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := json.Marshal(load.Config{Scenario: sc, Proxy: addr, Origin: addr, Verify: true})
	if err != nil {
		t.Fatal(err)
	}
	c, err := startSelf(here{}, cmdLoad, string(cfg))
	if err != nil {
		t.Fatal(err)
	}
	defer c.end()
	var res *load.Result
	for _, step := range []struct{ say, expect string }{
		{"", load.Ready}, {"run\nmeasure 0.3", load.Start}, {"", load.End}, {"pause", load.Paused},
		{"run\npause", load.Paused},
	} {
		if step.expect == load.Paused && !sc.Requests() {
			break
		}
		if step.say != "" {
			if err := c.say(step.say); err != nil {
				t.Fatal(err)
			}
		}
		ev, err := c.expect(ctx, step.expect, 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if ev.Result != nil {
			res = ev.Result
		}
	}
	return res
}

func TestLoadAgainstOrigin(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	org, addr := startTestOrigin(t, ctx)
	for _, name := range []string{
		"relay-ka-1k-8", "relay-ka-1k-8@500", "relay-ka-1k-8@50", "relay-ka-1m-2", "relay-close-1k-8",
		"relay-ka-2k-50k-4", "http-ka-1k-4", "relay-stream2", "relay-stream2-down", "http-stream1", "relay-idle-50",
		"relay-mix-30", "http-mix-30@300",
	} {
		t.Run(name, func(t *testing.T) {
			res := measureLoad(t, ctx, name, addr)
			if len(res.Errors) > 0 {
				t.Errorf("errors: %v", res.Errors)
			}
			sc, _ := scenario.Parse(name)
			if sc.Requests() && (res.Requests == 0 || res.Latency.P50 == 0) {
				t.Errorf("no requests: %+v", res)
			}
			if sc.Kind != scenario.Idle && res.Bytes == 0 {
				t.Errorf("no bytes: %+v", res)
			}
			if sc.Kind != scenario.Close && res.Open != sc.Conns {
				t.Errorf("%d connections open, want %d", res.Open, sc.Conns)
			}
		})
	}
	st, err := org.originStats(ctx)
	if err != nil || st.Mismatches != 0 || st.BadHeads != 0 || st.Requests == 0 {
		t.Errorf("origin's totals: %+v, %v", st, err)
	}
}

func TestLoadWithoutProxy(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	addr := freePort(t)
	sc, _ := scenario.Parse("relay-ka-1k-4")
	cfg, _ := json.Marshal(load.Config{Scenario: sc, Proxy: addr, Origin: addr})
	c, err := startSelf(here{}, cmdLoad, string(cfg))
	if err != nil {
		t.Fatal(err)
	}
	defer c.end()
	if ev, err := c.expect(ctx, load.Ready, 30*time.Second); err == nil {
		t.Errorf("the load is ready with nobody listening: %+v", ev)
	}
}

func TestPlanRotates(t *testing.T) {
	nginx, _ := peer.Find("nginx")
	dante, _ := peer.Find("dante")
	haproxy, _ := peer.Find("haproxy")
	subjects := []*subject{{label: "a", peer: nginx}, {label: "b", peer: haproxy}, {label: "c", peer: dante}}
	relay, _ := scenario.Parse("relay-ka-1k")
	socks, _ := scenario.Parse("socks-ka-1k")
	var got string
	for _, j := range plan(3, subjects, []scenario.Scenario{relay, socks}) {
		got += j.subject.label
	}
	if want := "abc" + "bac" + "abc"; got != want {
		t.Errorf("order %s, want %s", got, want)
	}
}

func TestTakesPart(t *testing.T) {
	nginx, _ := peer.Find("nginx")
	for name, want := range map[string][2]bool{ // alone, and as a contender
		"relay-ka-1k": {true, true}, "relay-stream1": {true, false}, "socks-ka-1k": {false, false},
	} {
		sc, _ := scenario.Parse(name)
		alone := subject{label: "nginx", peer: nginx}
		contends := subject{label: "nginx", peer: nginx, contends: true}
		if got := [2]bool{alone.takesPart(sc), contends.takesPart(sc)}; got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestPace(t *testing.T) {
	for _, tt := range []struct {
		row  result.Row
		want string
	}{
		{result.Row{ProxyLoad: 0.95, ClientLoad: 0.5}, "prx"},
		{result.Row{ProxyLoad: 0.95, ClientLoad: 0.9, OriginLoad: 0.9}, "prx+cli+srv"},
		{result.Row{ProxyLoad: 0.2}, "-"},
	} {
		if got := pace(tt.row); got != tt.want {
			t.Errorf("pace(%+v) = %s, want %s", tt.row, got, tt.want)
		}
	}
}

func TestPerRequest(t *testing.T) {
	sum, by := perRequest(map[string]int64{"read": 200, "epoll_wait": 50, "write": 200, "rare": 0}, 100)
	if sum != 4.5 || by != "read=2.00 write=2.00 epoll_wait=0.50" {
		t.Errorf("perRequest = %v, %q", sum, by)
	}
}

func TestParseRun(t *testing.T) {
	o, err := parseRun([]string{"--bin", "3proxyd-old=/x", "--line", "3proxyd=a", "--line", "3proxyd=b c", "--services", "3proxyd=-s0"})
	if err != nil || o.bins.last("3proxyd-old") != "/x" || len(o.lines["3proxyd"]) != 2 || o.services.last("3proxyd") != "-s0" {
		t.Errorf("parseRun = %+v, %v", o, err)
	}
	for _, bad := range [][]string{{"--reps", "0"}, {"--secs", "0.01"}, {"--bin", "x"}, {"extra"}} {
		if _, err := parseRun(bad); err == nil {
			t.Errorf("parseRun(%q): no error", bad)
		}
	}
}

// A mistake in a command line is told at once, not after the wait for another run.
func TestMistakesNeedNoLab(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, args := range [][]string{
		{"run", "--proxy", "nope"},
		{"run", "--proxy", "direct,direct"},
		{"run", "--proxy", "direct", "--scenario", "http-ka-1k"},
		{"run", "--proxy", "3proxyd", "--bin", "3proxyd=/nonexistent"},
		{"run", "--secs", "NaN"},
	} {
		if err := runCommand(ctx, args[1:]); err == nil || errors.Is(err, context.Canceled) {
			t.Errorf("%q: %v", args, err)
		}
	}
	for _, args := range [][]string{{"list", "extra"}, {"deps", "extra"}, {"list", "--nope"}, {"check", "extra"}, {"check", "--only", "nope"}, {"check", "--reps", "0"}} {
		if err := dispatch(args); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}

// A compiler that is killed by Ctrl-C is no failed build.
func TestBuildInterrupted(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte("#!/bin/sh\nexec sleep 60\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := buildDaemon(ctx, dir); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("buildDaemon: %v", err)
	}
}

func TestNewestCSV(t *testing.T) {
	dir := t.TempDir()
	if name, err := newestCSV(dir); err == nil {
		t.Errorf("found %s in an empty directory", name)
	}
	for i, name := range []string{"full.csv", "20260102-030405.csv"} {
		path := filepath.Join(dir, name)
		at := time.Unix(int64(1000+i), 0)
		if err := errors.Join(os.WriteFile(path, nil, 0o644), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
		if got, err := newestCSV(dir); err != nil || got != path {
			t.Errorf("newest is %s, %v; want %s", got, err, path)
		}
	}
}

func TestTailKeepsTheEnd(t *testing.T) {
	var tl tail
	for range 1000 {
		_, _ = tl.Write([]byte("0123456789"))
	}
	if got := tl.String(); len(got) != tailSize || got[len(got)-1] != '9' {
		t.Errorf("tail keeps %d bytes", len(got))
	}
}
