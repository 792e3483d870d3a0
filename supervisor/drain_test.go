package supervisor

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"3proxyd/ipc"
)

func TestSignalAfterDrainKeepsSessions(t *testing.T) {
	ports := freePorts(t, 1)
	b := startBed(t, testConfig(t, ports...))
	session := b.dial(ports[0])
	timeout := 30.0
	r, err := b.client.Drain(t.Context(), ipc.DrainRequest{TimeoutSec: &timeout})
	if err != nil || len(r.Draining) != 2 || r.TimeoutSec != 30 {
		t.Fatalf("%+v, %v", r, err)
	}
	// Without a time of its own the second drain keeps the first one's end.
	again, err := b.client.Drain(t.Context(), ipc.DrainRequest{})
	if err != nil || again.TimeoutSec > 30 {
		t.Errorf("second drain: %+v, %v", again, err)
	}
	for slot := range 2 {
		var failed *ipc.RequestError
		if _, err := b.client.Drain(t.Context(), ipc.DrainRequest{Worker: &slot}); !errors.As(err, &failed) || failed.Status != 409 || failed.Text != errDraining.Error() {
			t.Errorf("draining worker %d: %v", slot, err)
		}
	}
	b.signals <- syscall.SIGTERM
	b.eventually("the signal is told", func() error {
		if !strings.Contains(b.log(), "send SIGTERM again to stop now") {
			return errors.New(b.log())
		}
		return nil
	})
	if !strings.Contains(b.log(), "draining, 1 session is open, for up to 30s; send SIGTERM twice to stop now") {
		t.Errorf("log:\n%s", b.log())
	}
	_ = session.conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	var netErr interface{ Timeout() bool }
	if _, err := session.conn.Read(make([]byte, 1)); !errors.As(err, &netErr) || !netErr.Timeout() {
		t.Errorf("the session after the first signal: %v", err)
	}
	b.signals <- syscall.SIGTERM
	b.awaitEnd()
}

func (b *bed) awaitEnd() {
	b.t.Helper()
	select {
	case err := <-b.ended:
		b.ended <- err
	case <-time.After(20 * time.Second):
		b.t.Errorf("the daemon does not end\n%s", b.log())
	}
}

func TestSIGQUITStopsAtOnce(t *testing.T) {
	ports := freePorts(t, 1)
	b := startBed(t, testConfig(t, ports...))
	b.dial(ports[0])
	b.signals <- syscall.SIGQUIT
	b.awaitEnd()
}

func TestDrainLimit(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		limit   drainLimit
		end     time.Time
		seconds float64
	}{
		"first":             {drainLimit{time.Minute, false}, time.Time{}, 60},
		"not prolonged":     {drainLimit{time.Minute, false}, now.Add(10 * time.Second), 10},
		"shortened":         {drainLimit{time.Minute, false}, now.Add(time.Hour), 60},
		"explicit, longer":  {drainLimit{time.Minute, true}, now.Add(10 * time.Second), 60},
		"explicit, at once": {drainLimit{0, true}, now.Add(10 * time.Second), 0},
	} {
		if got := c.limit.until(c.end).Sub(now).Seconds(); got < c.seconds || got > c.seconds+5 {
			t.Errorf("%s: %v seconds, want %v", name, got, c.seconds)
		}
	}
}

func TestReadDrain(t *testing.T) {
	for body, want := range map[string]string{
		"":                            "",
		" {} \n":                      "",
		`{"worker":1}`:                "",
		"{":                           "it breaks off",
		"[]":                          "not a JSON object",
		"null":                        "not a JSON object",
		`{"worker":"x"}`:              "worker must be a whole number",
		`{"worker":1.5}`:              "worker must be a whole number",
		`{"timeout_seconds":"1m"}`:    "timeout_seconds must be a number",
		`{"wrker":1}`:                 `unknown field "wrker"`,
		`{"worker":1}{"worker":2}`:    "something follows",
		`{"timeout_seconds":3} extra`: "something follows",
	} {
		_, err := readBody[ipc.DrainRequest](strings.NewReader(body))
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "Go ")) {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func FuzzReadDrain(f *testing.F) {
	for _, seed := range []string{"", "{}", `{"worker":1,"timeout_seconds":2.5}`, `{"worker":1} x`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		if _, err := readBody[ipc.DrainRequest](strings.NewReader(body)); err != nil && strings.Contains(err.Error(), "Go struct") {
			t.Errorf("%q: %v", body, err)
		}
	})
}
