package ipc

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func goldenSession() MoveSession {
	return MoveSession{
		Service: 1, Generation: 4, Client: netip.MustParseAddrPort("192.0.2.1:40000"), User: []byte("a\xffb"),
		Host: []byte("example.com"), Addr: netip.MustParseAddr("2001:db8::1"), Port: 443, Op: 2,
		Text: []byte("CONNECT example.com:443 HTTP/1.1"), StartedMS: 1000, BeganMS: 1001,
		BytesIn: 5, BytesOut: 6, HalfClosed: true, Unsent: 7, DrainedMS: 1002,
		Server:     netip.MustParseAddrPort("[2001:db8::1]:443"),
		ClientConn: MoveConn{Output: 3, Shutdown: true, ReadSize: 4096, FlushedMS: 1003},
		ServerConn: MoveConn{DistrustShortReads: true, Unwritten: true, Nagle: true},
		Up:         MoveFlow{Active: true, Splicing: true, Streak: 2, LastMS: 1004},
	}
}

// TestGoldenMoveFrames keeps the format that older and newer binaries speak.
func TestGoldenMoveFrames(t *testing.T) {
	for name, m := range map[string]struct {
		typ  Type
		body any
		nfds int
	}{
		"hello":     {MsgMoveHello, MoveHello{MinVersion: 1, Version: 1, Row: 2, Incarnation: 3}, 0},
		"welcome":   {MsgMoveWelcome, MoveWelcome{Version: 1}, 0},
		"service":   {MsgMoveService, MoveService{Ref: 1, Column: 2, MaxConn: 100, OldSecrets: true, Config: json.RawMessage(`{"ID":"socks@:1080"}`)}, 0},
		"session":   {MsgMoveSession, goldenSession(), 2},
		"to_client": {MsgMoveToClient, Raw("\x00\xff{"), 0},
		"answer":    {MsgMoveAnswer, MoveAnswer{Error: "no descriptors", Full: true}, 0},
		"commit":    {MsgMoveCommit, nil, 0},
		"end":       {MsgMoveEnd, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			frame, err := encode(moveFrameVersion, m.typ, 7, m.body, m.nfds)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", "move1", name+".bin")
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
			h, _, err := decodeFrame(moveFrameVersion, golden, m.nfds)
			if err != nil || h.typ != m.typ || h.id != 7 {
				t.Errorf("decoded %+v, %v", h, err)
			}
		})
	}
}

// TestMoveSessionFromNewer reads a session with fields of a newer binary.
func TestMoveSessionFromNewer(t *testing.T) {
	data, err := json.Marshal(goldenSession())
	if err != nil {
		t.Fatal(err)
	}
	data = append([]byte(`{"new":{"a":[1]},`), data[1:]...)
	var s MoveSession
	if err := (&Message{Body: data}).Decode(&s); err != nil || string(s.User) != "a\xffb" || s.Validate() != nil {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestMoveSessionValidate(t *testing.T) {
	for name, spoil := range map[string]func(*MoveSession){
		"user":      func(s *MoveSession) { s.User = make([]byte, maxMoveName+1) },
		"host":      func(s *MoveSession) { s.Host = make([]byte, maxMoveName+1) },
		"text":      func(s *MoveSession) { s.Text = make([]byte, maxMoveText+1) },
		"unsent":    func(s *MoveSession) { s.Unsent = -1 },
		"output":    func(s *MoveSession) { s.ClientConn.Output = MaxMoveOutput + 1 },
		"negative":  func(s *MoveSession) { s.ServerConn.Output = -1 },
		"read size": func(s *MoveSession) { s.ServerConn.ReadSize = -1 },
	} {
		s := goldenSession()
		if spoil(&s); s.Validate() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	s := goldenSession()
	s.Text, s.User = make([]byte, maxMoveText), make([]byte, maxMoveName)
	s.Host, s.ServerHost, s.ServerUser = s.User, s.User, s.User
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
	if _, err := encode(Version, MsgMoveSession, 1, s, 2); err != nil {
		t.Errorf("the greatest session: %v", err)
	}
}

func TestAnswerMoveHello(t *testing.T) {
	for _, c := range []struct{ least, most, want int }{{1, 1, 1}, {1, 9, 1}, {2, 9, 0}, {0, 0, 0}, {-3, -1, 0}} {
		w := AnswerMoveHello(MoveHello{MinVersion: c.least, Version: c.most})
		if w.Version != c.want || (w.Error == "") != (c.want > 0) {
			t.Errorf("%+v: %+v", c, w)
		}
	}
}

func movePair(t *testing.T) (a, b *Conn) {
	t.Helper()
	out, in, err := MovePair()
	if err != nil {
		t.Fatal(err)
	}
	var conns []*Conn
	for _, f := range []*os.File{out, in} {
		c, err := NewMoveConn(dup(t, int(f.Fd())))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = f.Close()
		conns = append(conns, c)
	}
	return conns[0], conns[1]
}

// TestMoveConnReadsAfterReset closes an end that has unread packets: what it
// sent before still arrives.
func TestMoveConnReadsAfterReset(t *testing.T) {
	a, b := movePair(t)
	if err := b.Send(MsgMoveAnswer, 1, nil); err != nil {
		t.Fatal(err)
	}
	for id := range 3 {
		if err := a.Send(MsgMoveCommit, uint32(id), nil); err != nil {
			t.Fatal(err)
		}
	}
	_ = a.Close()
	for id := range 3 {
		m, err := b.Recv()
		if err != nil || m.ID != uint32(id) || m.Type != MsgMoveCommit {
			t.Fatalf("message %d: %+v, %v", id, m, err)
		}
	}
	if _, err := b.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last: %v", err)
	}
}

func FuzzMoveSession(f *testing.F) {
	seed, _ := json.Marshal(goldenSession())
	f.Add(string(seed))
	for _, s := range []string{"", "{}", "null", `{"client":"x"}`, `{"port":65536}`, `{"client_conn":{"output":-1}}`, `{"secret":"AA=="}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		var s MoveSession
		if (&Message{Body: []byte(body)}).Decode(&s) != nil || s.Validate() != nil {
			return
		}
		if _, err := encode(Version, MsgMoveSession, 1, s, 2); err != nil {
			t.Errorf("a session that was accepted cannot be sent: %v", err)
		}
	})
}

func TestMoveServiceIsBounded(t *testing.T) {
	big := MoveService{Config: json.RawMessage(`"` + strings.Repeat("x", MaxBody) + `"`)}
	if _, err := encode(Version, MsgMoveService, 1, big, 0); err == nil {
		t.Error("accepted")
	}
}
