package e2e

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMonitor changes a monitored file in every way an editor or a deployment
// does.
func TestMonitor(t *testing.T) {
	t.Parallel()
	echo, first, second := echoOrigin(t), port(t), port(t)
	d := newDaemon(t, "")
	text := func(p int) string {
		return fmt.Sprintf("control %s\nmonitor 3proxy.cfg\nworkers 1\nauth none\ninternal 127.0.0.1\ntcppm %d 127.0.0.1 %d\n", d.socket, p, echo)
	}
	save := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	generation := func(want uint64) {
		t.Helper()
		eventually(t, patience, func() string {
			if g := d.status().Generation; g != want {
				return fmt.Sprintf("generation %d instead of %d", g, want)
			}
			return ""
		})
	}
	save(d.config, text(first))
	d.launch()
	d.await()
	save(d.config, text(second))
	generation(2)
	mustPing(t, dial(t, second))
	// Replaced by renaming.
	save(d.config+".new", text(first))
	if err := os.Rename(d.config+".new", d.config); err != nil {
		t.Fatal(err)
	}
	generation(3)
	// A file that is being written slowly is read when it is whole.
	f, err := os.Create(d.config)
	if err != nil {
		t.Fatal(err)
	}
	whole := text(second)
	for i := range 5 {
		part := len(whole) / 5
		end := (i + 1) * part
		if i == 4 {
			end = len(whole)
		}
		if _, err := f.WriteString(whole[i*part : end]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
	}
	f.Close()
	generation(4)
	if r := d.status().LastReload; r == nil || !r.OK {
		t.Errorf("last reload: %+v", r)
	}
	// Deleted: nothing changes until it is back.
	if err := os.Remove(d.config); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, func() string {
		if !strings.Contains(d.out.String(), "monitored file "+d.config+" is gone") {
			return "the loss is not reported"
		}
		return ""
	})
	mustPing(t, dial(t, second))
	save(d.config, text(first))
	generation(5)
	// Invalid: reported, and the configuration stays.
	save(d.config, text(second)+"proxxy\n")
	eventually(t, patience, func() string {
		if r := d.status().LastReload; r.OK || !strings.Contains(r.Error, d.config+":7:1") {
			return fmt.Sprintf("last reload: %+v", r)
		}
		return ""
	})
	generation(5)
	mustPing(t, dial(t, first))
	// A reload by signal leaves nothing for the monitor to do.
	save(d.config, text(second))
	_ = d.cmd.Process.Signal(syscall.SIGUSR1)
	generation(6)
	time.Sleep(2500 * time.Millisecond)
	generation(6)
}
