package ipc

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"3proxyd/config"
)

func goldenManifest() Manifest {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return Manifest{
		Version: "1.2.3", PID: 4711, Started: at, Generation: 9, Services: []string{"proxy@127.0.0.1:3128"},
		Sockets: []HandoffSocket{
			{Kind: HandoffListener, Key: "tcp:127.0.0.1:3128", Slot: 0, Network: "tcp", Address: "127.0.0.1:3128", Listening: true,
				ReusePort: true, Backlog: 100, Options: []config.SockOpt{{Name: "TCP_DEFER_ACCEPT", Value: 1}}, Stored: true},
			{Kind: HandoffListener, Key: "systemd:web", Slot: -1, Network: "tcp", Address: "[::]:80", Listening: true, V6Only: true, Unit: "web"},
			{Kind: HandoffControl, Key: "3proxyd/control", Slot: -1, Network: "unix", Address: "/run/3proxy/control.sock", Listening: true, File: true},
		},
		Columns: map[string]int{"proxy@127.0.0.1:3128": 0}, ColumnsUsed: 1, Past: map[int][]uint64{1: {0, 5}},
		Slots:   []HandoffSlot{{Idle: []int{2}, Busy: []int{0, 1}}},
		Workers: []HandoffWorker{{Slot: 0, Row: 0, PID: 4712, CPU: 3, Started: at}},
		Old: []HandoffOld{{Version: "1.2.2", PID: 4000, Started: at, Replaced: at, LeftMS: 60000,
			Workers: []HandoffWorker{{Slot: 0, Row: 1, PID: 4001, CPU: 3, Started: at}}}},
	}
}

// TestHandoffGolden keeps the messages between two builds: a change of these
// files that an older build would not understand needs a new HandoffMax.
func TestHandoffGolden(t *testing.T) {
	for name, m := range map[string]struct {
		typ  Type
		body any
		nfds int
	}{
		"hello":     {MsgHandoffHello, HandoffHello{Min: 1, Max: 2, Version: "1.2.3", PID: 4711}, 0},
		"manifest":  {MsgHandoffManifest, HandoffManifest{Version: 1}, 2},
		"files":     {MsgHandoffFiles, HandoffFiles{First: 64, Count: 3}, 3},
		"ack":       {MsgHandoffAck, HandoffFiles{First: 64, Count: 3}, 0},
		"ready":     {MsgHandoffReady, HandoffReady{Generation: 10, ColumnsUsed: 2, Unused: []string{"tcp:127.0.0.1:80"}, Added: []string{"a"}, Removed: []string{"b"}, Kept: []string{"c"}}, 0},
		"failed":    {MsgHandoffFailed, HandoffFailed{Reason: "it has errors", Diagnostics: []config.Diagnostic{{Pos: config.Pos{File: "f", Line: 1, Column: 2}, Severity: config.Error, Text: "t"}}}, 0},
		"cancel":    {MsgHandoffCancel, HandoffCancel{Reason: "no", TimeoutMS: 5000}, 0},
		"leave":     {MsgHandoffCancel, HandoffCancel{Reason: "no", TimeoutMS: 5000, Leave: true}, 0},
		"go":        {MsgHandoffGo, nil, 0},
		"serving":   {MsgHandoffServing, nil, 0},
		"check":     {MsgHandoffCheck, nil, 0},
		"process":   {MsgHandoffProcess, HandoffWorker{Slot: 1, Row: 2, PID: 3, CPU: 4}, 1},
		"takeover":  {MsgHandoffTakeover, HandoffTakeover{LeftMS: 3600000}, 0},
		"takenover": {MsgHandoffTakenOver, nil, 0},
		"released":  {MsgHandoffReleased, nil, 0},
		"move":      {MsgHandoffMove, HandoffMove{Slot: 1}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			frame, err := encode(handoffFrameVersion, m.typ, 0, m.body, m.nfds)
			if err != nil {
				t.Fatal(err)
			}
			golden := goldenFile(t, filepath.Join("testdata", "handoff1", name+".bin"), frame)
			if !bytes.Equal(frame, golden) {
				t.Errorf("frame %q differs from %q", frame, golden)
			}
		})
	}
}

func goldenFile(t *testing.T, path string, now []byte) []byte {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, now, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return golden
}

// TestManifestGolden expects a manifest of an earlier build to be read as it
// was meant.
func TestManifestGolden(t *testing.T) {
	data, err := json.MarshalIndent(goldenManifest(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	var m Manifest
	if err := json.Unmarshal(goldenFile(t, filepath.Join("testdata", "handoff1", "manifest.json"), data), &m); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(m, goldenManifest()) {
		t.Errorf("the manifest is read as %+v", m)
	}
}

func TestChooseHandoffVersion(t *testing.T) {
	for _, c := range []struct{ min, max, want int }{
		{HandoffMin, HandoffMax, HandoffMax},
		{HandoffMin, HandoffMax + 5, HandoffMax},
		{HandoffMax + 1, HandoffMax + 2, 0},
		{0, HandoffMin - 1, 0},
	} {
		v, err := ChooseHandoffVersion(HandoffHello{Min: c.min, Max: c.max})
		if v != c.want || (err == nil) != (c.want > 0) {
			t.Errorf("%d to %d: %d, %v", c.min, c.max, v, err)
		}
	}
}
