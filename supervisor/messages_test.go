package supervisor

import (
	"io"
	"strings"
	"testing"
	"time"
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
