package worker

import (
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"3proxyd/ipc"
)

// succeed connects to the worker, which has lost its supervisor, as another
// one, and reads what it says.
func (p *proxy) succeed() (*ipc.Conn, ipc.Orphan, []ipc.FileEntry) {
	p.t.Helper()
	var conn *ipc.Conn
	var err error
	for range 1000 {
		if conn, _, err = ipc.DialOrphan(ipc.OrphanName("", os.Getpid())); err == nil {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	p.conn = conn
	m := p.expect(ipc.MsgOrphan)
	var o ipc.Orphan
	if err := m.Decode(&o); err != nil || len(m.FDs) != 1 {
		p.t.Fatalf("%v, %d descriptors", err, len(m.FDs))
	}
	m.CloseFDs()
	var entries []ipc.FileEntry
	for {
		m, err := receive(conn)
		if err != nil {
			p.t.Fatal(err)
		}
		if m.Type == ipc.MsgOrphanEnd {
			return conn, o, entries
		}
		var files ipc.Files
		if err := m.Decode(&files); err != nil || len(files.Entries) != len(m.FDs) {
			p.t.Fatalf("type %d: %v, %d entries, %d descriptors", m.Type, err, len(files.Entries), len(m.FDs))
		}
		for _, fd := range m.FDs {
			if n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || n != 1 {
				p.t.Errorf("descriptor %d does not listen: %v", fd, err)
			}
		}
		m.CloseFDs()
		entries = append(entries, files.Entries...)
	}
}

// greet makes a SOCKS greeting at the proxy's first service.
func (p *proxy) greet() {
	p.t.Helper()
	c, err := net.Dial("tcp", p.addrs[0])
	if err != nil {
		p.t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	answer := make([]byte, 2)
	if _, err := c.Write([]byte{5, 1, 0}); err != nil {
		p.t.Fatal(err)
	}
	if _, err := io.ReadFull(c, answer); err != nil {
		p.t.Fatal(err)
	}
}

// TestOrphan takes the supervisor away, twice, and drains the worker by the
// second successor.
func TestOrphan(t *testing.T) {
	p := startProxy(t, "auth none\ninternal 127.0.0.1\nsocks -pPORT\nsocks -pPORT\n")
	_ = p.conn.Close()
	p.greet()
	for range 2 {
		conn, o, entries := p.succeed()
		if o.Version != ipc.Version || o.Gen != 1 || o.Row != 0 || len(entries) != 2 || entries[0].Service == entries[1].Service {
			t.Errorf("%+v, %+v", o, entries)
		}
		p.greet()
		_ = conn.Close()
		p.greet()
	}
	p.succeed()
	p.send(ipc.MsgDrain, ipc.Drain{TimeoutMS: 1000})
	p.expect(ipc.MsgDraining)
	p.drained = true
}
