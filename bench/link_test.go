package main

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"3proxyd/bench/lab"
	"3proxyd/bench/load"
	"3proxyd/bench/scenario"
	"3proxyd/bench/wire"
)

func TestParseRunLink(t *testing.T) {
	for _, args := range [][]string{{}, {"--link", "20mbit,5ms"}, {"--link", "20mbit,5ms,0.5%", "--link-by", "wire"}} {
		o, err := parseRun(args)
		if err != nil {
			t.Fatal(err)
		}
		if k, err := o.parseLink(); err != nil || (k == nil) != (len(args) == 0) {
			t.Errorf("%v: %+v, %v", args, k, err)
		}
	}
	for _, args := range [][]string{
		{"--link", "fast"}, {"--link", "20mbit,5ms,-1%"}, {"--link", "0mbit,5ms"}, {"--link", "20mbit,5ms", "--link-by", "tc"},
		{"--link-by", "wire"},
	} {
		o, err := parseRun(args)
		if err != nil {
			t.Fatal(err)
		}
		if k, err := o.parseLink(); err == nil {
			t.Errorf("%v: %+v, want an error", args, k)
		}
	}
}

// linkLab makes a lab with a link by the wire.
func linkLab(t *testing.T, ctx context.Context, link string) (*lab.Lab, *child) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	cpus, err := lab.DefaultCPUs()
	if err != nil {
		t.Fatal(err)
	}
	l, err := lab.New(ctx, cpus)
	if errors.Is(err, context.DeadlineExceeded) {
		t.Skip("another run has the lab: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	o := &options{link: link, linkBy: byWire}
	k, err := o.parseLink()
	if err != nil {
		t.Fatal(err)
	}
	w, err := o.shape(ctx, l, *k)
	if errors.Is(err, lab.ErrKernel) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.end)
	if want := link + " by wire"; o.link != want {
		t.Errorf("the link is called %q, want %q", o.link, want)
	}
	return l, w
}

// overLink has the client load an origin at the proxy's end of the link, and
// returns what the wire did meanwhile as well.
func overLink(t *testing.T, ctx context.Context, l *lab.Lab, w *child, name string) (*load.Result, wire.Stats) {
	t.Helper()
	addr := netip.AddrPortFrom(lab.ProxyAddr, 8000)
	org, err := startSelf(l.Proxy, cmdOrigin, addr.String(), "verify")
	if err != nil {
		t.Fatal(err)
	}
	defer org.end()
	if _, err := org.hear(ctx, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	sc, err := scenario.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := json.Marshal(load.Config{Scenario: sc, Proxy: addr, Origin: addr, Verify: true})
	if err != nil {
		t.Fatal(err)
	}
	c, err := startSelf(l.Client, cmdLoad, string(cfg))
	if err != nil {
		t.Fatal(err)
	}
	defer c.end()
	before, err := w.wireStats(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var res *load.Result
	for _, step := range []struct{ say, expect string }{{"", load.Ready}, {"run", ""}, {"measure 1.5", load.Start}, {"", load.End}} {
		if step.say != "" {
			if err := c.say(step.say); err != nil {
				t.Fatal(err)
			}
		}
		if step.expect == "" {
			time.Sleep(300 * time.Millisecond) // for TCP to find the rate
			continue
		}
		ev, err := c.expect(ctx, step.expect, 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if ev.Result != nil {
			res = ev.Result
		}
	}
	after, err := w.wireStats(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Errors) > 0 {
		t.Errorf("%s: errors %v", name, res.Errors)
	}
	st := wire.Stats{
		Packets: after.Packets - before.Packets, Lost: after.Lost - before.Lost,
		Dropped: after.Dropped - before.Dropped, Late: after.Late - before.Late,
	}
	return res, st
}

// skipIfLate skips a test of rate or delay whose packets waited for a busy CPU.
func skipIfLate(t *testing.T, st wire.Stats) {
	t.Helper()
	if st.Late*10 > st.Packets {
		t.Skipf("this machine is too busy: %d of %d packets were late", st.Late, st.Packets)
	}
}

func TestWireRate(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l, w := linkLab(t, ctx, "20mbit,5ms")
	for name, conns := range map[string]float64{
		"relay-stream1": 1, "relay-stream1-down": 1, "relay-stream4": 4, "relay-stream4-down": 4,
	} {
		res, st := overLink(t, ctx, l, w, name)
		skipIfLate(t, st)
		got, want := float64(res.Bytes)*8e9/float64(res.Nanos), conns*20e6
		t.Logf("%s: %.1f Mbit/s, %+v", name, got/1e6, st)
		if got < 0.85*want || got > 1.15*want {
			t.Errorf("%s: %.1f Mbit/s, want %.1f", name, got/1e6, want/1e6)
		}
		if st.Lost != 0 {
			t.Errorf("%s: %d packets lost on a link without losses", name, st.Lost)
		}
	}
	res, st := overLink(t, ctx, l, w, "relay-ka-1k-4")
	skipIfLate(t, st)
	p50 := time.Duration(res.Latency.P50)
	t.Logf("p50 %v, %+v", p50, st)
	if p50 < 10*time.Millisecond || p50 > 15*time.Millisecond {
		t.Errorf("an exchange takes %v on a link with a delay of 5 ms", p50)
	}
}

func TestWireLoss(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l, w := linkLab(t, ctx, "50mbit,2ms,2%")
	_, st := overLink(t, ctx, l, w, "relay-stream16-down")
	share, n := float64(st.Lost)/float64(st.Packets), float64(st.Packets)
	t.Logf("%.2f%% lost, %+v", 100*share, st)
	// Five standard deviations: the loss is drawn for each packet, however
	// late it comes.
	if n < 500 || math.Abs(share-0.02) > 5*math.Sqrt(0.02*0.98/n) {
		t.Errorf("%d of %d packets lost, want 2%%", st.Lost, st.Packets)
	}
}

// TestWireEnds kills the process: the devices are to go with it.
func TestWireEnds(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l, w := linkLab(t, ctx, "20mbit,5ms")
	if err := w.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-w.exited
	if _, err := w.wireStats(ctx); err == nil || !strings.Contains(err.Error(), cmdWire) {
		t.Errorf("the wire's end is not told: %v", err)
	}
	for _, r := range []*lab.Role{l.Client, l.Proxy} {
		err := r.Do(func() error {
			text, err := os.ReadFile("/proc/thread-self/net/dev")
			if err == nil && (strings.Contains(string(text), "cli0") || strings.Contains(string(text), "prx0")) {
				err = errors.New("the device is still there:\n" + string(text))
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}
