package ipc

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write the golden frames anew")

// TestGoldenFrames keeps the wire format: a change of these files needs a new
// Version.
func TestGoldenFrames(t *testing.T) {
	for name, m := range map[string]struct {
		typ  Type
		id   uint32
		body any
		nfds int
	}{
		"hello":        {MsgHello, 0, Hello{Version: 1, PID: 4711}, 0},
		"welcome":      {MsgWelcome, 1, Welcome{Version: 1, Slot: 2, Row: 3, Workers: 4, CPU: 5, MaxFDs: 6, MaxPipes: 7, PipeSize: 8}, 1},
		"prepare":      {MsgPrepare, 2, Prepare{Gen: 9, Services: []ServiceSlot{{Column: 1, MaxConn: 100}}}, 1},
		"files":        {MsgFiles, 3, Files{Gen: 9, Entries: []FileEntry{{Kind: FileListener, Service: "proxy@127.0.0.1:3128", Slot: 2}}}, 1},
		"prepare_end":  {MsgPrepareEnd, 4, Generation{Gen: 9}, 0},
		"prepared":     {MsgPrepared, 4, Prepared{Gen: 9, Error: "no memory"}, 0},
		"commit":       {MsgCommit, 5, Generation{Gen: 9}, 0},
		"disown":       {MsgDisown, 6, Disown{Slot: 1}, 0},
		"drain":        {MsgDrain, 7, Drain{TimeoutMS: 60000}, 0},
		"unrecognized": {MsgUnrecognized, 8, Unrecognized{Type: 99}, 0},
		"empty":        {MsgDraining, 9, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			frame, err := encode(Version, m.typ, m.id, m.body, m.nfds)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", "v1", name+".bin")
			if *update {
				if err := os.WriteFile(path, frame, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			golden, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(frame, golden) {
				t.Errorf("frame %q differs from %s", frame, path)
			}
			h, _, err := decodeFrame(Version, golden, m.nfds)
			if err != nil || h.typ != m.typ || h.id != m.id {
				t.Errorf("decoded %+v, %v", h, err)
			}
		})
	}
}

func TestDecodeFrameRefuses(t *testing.T) {
	good, _ := encode(Version, MsgHello, 7, Hello{Version: 1}, 2)
	mutate := func(at int, v byte) []byte {
		b := bytes.Clone(good)
		b[at] = v
		return b
	}
	for name, c := range map[string]struct {
		packet []byte
		nfds   int
	}{
		"empty":            {nil, 0},
		"short header":     {good[:15], 2},
		"short body":       {good[:len(good)-1], 2},
		"surplus":          {append(bytes.Clone(good), 0), 2},
		"flags":            {mutate(2, 1), 2},
		"version":          {mutate(3, 2), 2},
		"reserved":         {mutate(14, 1), 2},
		"huge length":      {mutate(7, 0x80), 2},
		"missing fd":       {good, 1},
		"surplus fd":       {good, 3},
		"more than MaxFDs": {mutate(12, MaxFDs+1), MaxFDs + 1},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := decodeFrame(Version, c.packet, c.nfds); !errors.Is(err, ErrFrame) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestGreatestPrepareFits(t *testing.T) {
	p := Prepare{Gen: 1 << 62, Services: make([]ServiceSlot, MaxColumns)}
	for i := range p.Services {
		p.Services[i] = ServiceSlot{Column: i, MaxConn: 1 << 30}
	}
	if _, err := encode(Version, MsgPrepare, 1, p, 1); err != nil {
		t.Fatal(err)
	}
}

func FuzzDecodeFrame(f *testing.F) {
	frames, _ := filepath.Glob("testdata/v1/*.bin")
	for _, path := range frames {
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, 0)
		f.Add(b, 1)
	}
	f.Add([]byte{}, 0)
	f.Fuzz(func(t *testing.T, packet []byte, nfds int) {
		h, body, err := decodeFrame(Version, packet, nfds)
		if err != nil {
			return
		}
		if len(body) > MaxBody || nfds > MaxFDs || nfds < 0 {
			t.Fatalf("accepted a body of %d bytes, %d descriptors", len(body), nfds)
		}
		if again := appendFrame(nil, h, body); !bytes.Equal(again, packet) {
			t.Fatalf("%q encodes to %q", packet, again)
		}
		var v Files
		_ = json.Unmarshal(body, &v)
	})
}
