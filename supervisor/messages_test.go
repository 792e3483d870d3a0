package supervisor

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"3proxyd/config"
	"3proxyd/systemd"
)

func TestMessagesDoNotWait(t *testing.T) {
	r, w := io.Pipe()
	m := startMessages(w)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for i := range 3 * messageQueue {
			m.logf("line %d", i)
		}
	}()
	select {
	case <-sent:
	case <-time.After(20 * time.Second):
		t.Fatal("logf waits for a reader")
	}
	text := make(chan string)
	go func() {
		all, _ := io.ReadAll(r)
		text <- string(all)
	}()
	m.stop()
	_ = w.Close()
	got := <-text
	if !strings.HasPrefix(got, "3proxyd: line 0\n") || !strings.Contains(got, "messages were dropped\n") {
		t.Errorf("written:\n%s", got)
	}
	m.logf("after the end")
}

func TestMessageFields(t *testing.T) {
	diag := config.Diagnostic{Pos: config.Pos{File: "/etc/x.cfg", Line: 3, Column: 7}, Severity: config.Error, Text: "wrong"}
	for _, c := range []struct {
		format string
		args   []any
		want   systemd.Priority
		fields string
	}{
		{"stopping", nil, systemd.Info, "map[THREEPROXYD_PROCESS:supervisor]"},
		{"warning: %s", []any{"x"}, systemd.Warning, "map[THREEPROXYD_PROCESS:supervisor]"},
		{"worker %d (pid %d) is running", []any{1, 77}, systemd.Info, "map[THREEPROXYD_PROCESS:supervisor THREEPROXYD_WORKER:1 THREEPROXYD_WORKER_PID:77]"},
		{"%s", []any{diag}, systemd.Error, "map[THREEPROXYD_COLUMN:7 THREEPROXYD_FILE:/etc/x.cfg THREEPROXYD_LINE:3 THREEPROXYD_PROCESS:supervisor]"},
	} {
		text := fmt.Sprintf(c.format, c.args...)
		if got := priorityOf(text); got != c.want {
			t.Errorf("%s: priority %d", text, got)
		}
		if got := fmt.Sprint(fieldsOf(c.format, c.args)); got != c.fields {
			t.Errorf("%s: %s", text, got)
		}
	}
}
