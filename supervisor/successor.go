package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"3proxyd/config"
	"3proxyd/ipc"
	"3proxyd/systemd"
)

// RoleSuccessor is a supervisor that takes over from a running one.
const RoleSuccessor = "successor"

// receiveTime bounds the wait for each message until everything is here.
const receiveTime = 30 * time.Second

// maxManifest bounds the manifest in bytes; one with 4096 services on 128
// slots has about 150 MB.
const maxManifest = 256 << 20

// Successor is what a daemon has received from the one it replaces.
type Successor struct {
	conn     *ipc.Conn
	manifest ipc.Manifest
	shm      *ipc.Shm
	// sockets, supervisor, workers and old are the descriptors, in the order
	// of ipc.MsgHandoffFiles.
	sockets    []systemd.Socket
	supervisor int
	workers    []int
	old        [][]int
	failed     bool
}

// Succeed receives everything from the running daemon when this process was
// started to replace it, else it returns nil. version is that of the own build.
// On an error the other daemon has been told, or is gone.
func Succeed(version string) (*Successor, error) {
	if os.Getenv(RoleEnv) != RoleSuccessor {
		return nil, nil
	}
	_ = os.Unsetenv(RoleEnv)
	conn, err := ipc.NewHandoffConn(ipc.HandoffFD)
	if err != nil {
		return nil, fmt.Errorf("handoff: %w", err)
	}
	s, err := receiveSuccessor(conn, version)
	if err != nil {
		return nil, fmt.Errorf("handoff: %w", err)
	}
	return s, nil
}

func receiveSuccessor(conn *ipc.Conn, version string) (*Successor, error) {
	s := &Successor{conn: conn}
	if err := s.receive(version); err != nil {
		s.Fail(err)
		return nil, err
	}
	return s, nil
}

// Fail tells the running daemon why this one does not replace it.
func (s *Successor) Fail(err error) {
	if s == nil || s.failed {
		return
	}
	s.failed = true
	body := ipc.HandoffFailed{Reason: err.Error()}
	var refused *Refused
	if errors.As(err, &refused) {
		body.Reason, body.Diagnostics = refused.Reason, boundDiagnostics(refused.Diagnostics)
	}
	// One that is gone needs no answer.
	_ = s.conn.Send(ipc.MsgHandoffFailed, 0, body)
}

// maxDiagnostics bounds what is reported of a refused configuration, so that
// it fits into a message.
const maxDiagnostics = 100

func boundDiagnostics(diags []config.Diagnostic) []config.Diagnostic {
	if len(diags) > maxDiagnostics {
		diags = diags[:maxDiagnostics]
	}
	return diags
}

// receive makes the first part of the handoff.
func (s *Successor) receive(version string) error {
	hello := ipc.HandoffHello{Min: ipc.HandoffMin, Max: ipc.HandoffMax, Version: version, PID: os.Getpid()}
	if err := s.conn.Send(ipc.MsgHandoffHello, 0, hello); err != nil {
		return err
	}
	if err := s.receiveManifest(); err != nil {
		return err
	}
	fds, err := s.receiveFiles(s.manifestFiles())
	if err != nil {
		return err
	}
	if err := s.distribute(fds); err != nil {
		return err
	}
	return s.conn.SetRecvDeadline(time.Time{})
}

func (s *Successor) recv(want ipc.Type) (*ipc.Message, error) {
	if err := s.conn.SetRecvDeadline(time.Now().Add(receiveTime)); err != nil {
		return nil, err
	}
	m, err := s.conn.Recv()
	if err != nil {
		return nil, err
	}
	if m.Type == want {
		return m, nil
	}
	m.CloseFDs()
	var c ipc.HandoffCancel
	if m.Type == ipc.MsgHandoffCancel && m.Decode(&c) == nil {
		return nil, fmt.Errorf("cancelled: %s", c.Reason)
	}
	return nil, fmt.Errorf("message type %d instead of %d", m.Type, want)
}

func (s *Successor) receiveManifest() error {
	m, err := s.recv(ipc.MsgHandoffManifest)
	if err != nil {
		return err
	}
	defer m.CloseFDs()
	var head ipc.HandoffManifest
	if err := m.Decode(&head); err != nil {
		return err
	}
	if head.Version < ipc.HandoffMin || head.Version > ipc.HandoffMax || len(m.FDs) != 2 {
		return fmt.Errorf("manifest of version %d with %d descriptors", head.Version, len(m.FDs))
	}
	data, err := ipc.ReadMemfd(m.FDs[0], maxManifest)
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	if s.manifest, err = decodeManifest(data); err != nil {
		return err
	}
	if s.shm, err = ipc.AdoptShm(m.FDs[1]); err != nil {
		return err
	}
	m.FDs = m.FDs[:1]
	return nil
}

// decodeManifest reads a manifest and checks that its numbers can be used.
func decodeManifest(data []byte) (ipc.Manifest, error) {
	var m ipc.Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("manifest: %w", err)
	}
	if len(m.Slots) == 0 || len(m.Slots) > maxWorkers {
		return m, fmt.Errorf("manifest: %d slots", len(m.Slots))
	}
	seen := map[int]bool{}
	for _, s := range m.Slots {
		for _, row := range append(append([]int(nil), s.Idle...), s.Busy...) {
			if row < 0 || row >= ipc.MaxRows || seen[row] {
				return m, fmt.Errorf("manifest: row %d is out of range or there twice", row)
			}
			seen[row] = true
		}
	}
	all := m.Workers
	for _, o := range m.Old {
		all = append(all[:len(all):len(all)], o.Workers...)
	}
	for _, w := range all {
		if w.Row < noRow || w.Row >= ipc.MaxRows {
			return m, fmt.Errorf("manifest: worker %d has row %d", w.PID, w.Row)
		}
	}
	return m, checkSlots(m.Sockets)
}

// checkSlots makes sure that the sockets of each listener come in the order of
// their slots, or belong to none.
func checkSlots(sockets []ipc.HandoffSocket) error {
	next := map[string]int{}
	for _, s := range sockets {
		if s.Slot < -1 || s.Slot >= maxWorkers {
			return fmt.Errorf("manifest: %s has slot %d", s.Key, s.Slot)
		}
		if want := next[s.Key]; s.Slot >= 0 && s.Slot != want {
			return fmt.Errorf("manifest: %s has slot %d instead of %d", s.Key, s.Slot, want)
		}
		next[s.Key]++
	}
	return nil
}

// manifestFiles is the number of descriptors that belong to the manifest.
func (s *Successor) manifestFiles() int {
	n := len(s.manifest.Sockets) + 1 + len(s.manifest.Workers)
	for _, o := range s.manifest.Old {
		n += 1 + len(o.Workers)
	}
	return n
}

// receiveFiles takes n descriptors, acknowledging each message.
func (s *Successor) receiveFiles(n int) ([]int, error) {
	if err := makeRoom(n); err != nil {
		return nil, err
	}
	fds := make([]int, 0, n)
	for len(fds) < n {
		m, err := s.recv(ipc.MsgHandoffFiles)
		if err != nil {
			return nil, err
		}
		var body ipc.HandoffFiles
		err = m.Decode(&body)
		if err == nil && (body.First != len(fds) || body.Count != len(m.FDs) || len(m.FDs) == 0 || len(fds)+len(m.FDs) > n) {
			err = fmt.Errorf("descriptors %d to %d of %d, expected from %d on", body.First, body.First+len(m.FDs), n, len(fds))
		}
		if err != nil {
			m.CloseFDs()
			return nil, err
		}
		fds = append(fds, m.FDs...)
		if err := s.conn.Send(ipc.MsgHandoffAck, 0, body); err != nil {
			return nil, err
		}
	}
	return fds, nil
}

// makeRoom raises RLIMIT_NOFILE for n more descriptors: the own configuration,
// by which it is set later, may need fewer.
func makeRoom(n int) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	need := uint64(n + 2*ipc.MaxFDs)
	if limit.Cur >= need {
		return nil
	}
	limit.Cur = min(need, limit.Max)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return os.NewSyscallError("setrlimit", err)
	}
	return nil
}

// distribute gives the descriptors their meaning, and checks each socket
// against what the kernel says of it.
func (s *Successor) distribute(fds []int) error {
	for i, want := range s.manifest.Sockets {
		socket, err := verifySocket(fds[i], want)
		if err != nil {
			return fmt.Errorf("socket %d of the manifest (%s): %w", i, want.Key, err)
		}
		s.sockets = append(s.sockets, socket)
	}
	fds = fds[len(s.manifest.Sockets):]
	s.supervisor, fds = fds[0], fds[1:]
	n := len(s.manifest.Workers)
	s.workers, fds = fds[:n], fds[n:]
	for _, o := range s.manifest.Old {
		n := 1 + len(o.Workers)
		s.old = append(s.old, fds[:n])
		fds = fds[n:]
	}
	return nil
}

// verifySocket compares a descriptor with its description.
func verifySocket(fd int, want ipc.HandoffSocket) (systemd.Socket, error) {
	name := want.Unit
	if name == "" {
		name = storeName(want.Key, want.Slot < 0, max(0, want.Slot))
	}
	if want.Kind == ipc.HandoffControl {
		name = controlStoreName
	}
	socket, err := systemd.Describe(fd, name)
	if err != nil {
		return socket, err
	}
	is := handoffSocket(socket)
	switch {
	case is.Network != want.Network || is.Address != want.Address:
		return socket, fmt.Errorf("it is %s %s, not %s %s", is.Network, is.Address, want.Network, want.Address)
	case is.Listening != want.Listening:
		return socket, fmt.Errorf("listening is %t, not %t", is.Listening, want.Listening)
	case is.V6Only != want.V6Only || is.ReusePort != want.ReusePort:
		return socket, errors.New("IPV6_V6ONLY or SO_REUSEPORT is not as described")
	case (want.Kind == ipc.HandoffListener || want.Kind == ipc.HandoffControl) && !is.Listening:
		return socket, errors.New("it does not listen")
	case want.Kind == ipc.HandoffDatagram && is.Network != "udp":
		return socket, errors.New("it is not a UDP socket")
	}
	return socket, nil
}

// listeners makes listeners of the sockets that were handed over, by key. What
// cannot become one, such as a socket of a kind this build does not serve, is
// closed.
func (s *Successor) listeners() map[string]*listener {
	made := map[string]*listener{}
	for i, socket := range s.sockets {
		what := s.manifest.Sockets[i]
		switch what.Kind {
		case ipc.HandoffListener, ipc.HandoffDatagram:
		case ipc.HandoffControl:
			continue
		default:
			_ = unix.Close(socket.FD)
			continue
		}
		l := made[what.Key]
		if l == nil {
			l = &listener{key: what.Key, endpoint: config.Endpoint{Network: networkOf(socket)}, shared: what.Slot < 0, backlog: what.Backlog, options: what.Options, kept: what.Unit != "", borrowed: true}
			made[what.Key] = l
		}
		if what.File && l.file == (socketFile{}) {
			l.file = fileOfSocket(what.Address)
			l.lost = l.file == socketFile{}
		}
		if l.kept {
			l.units = append(l.units, socket)
		}
		l.fds = append(l.fds, socket.FD)
	}
	return made
}

// control returns the control socket, for the inheritance.
func (s *Successor) control() []systemd.Socket {
	var found []systemd.Socket
	for i, socket := range s.sockets {
		if s.manifest.Sockets[i].Kind == ipc.HandoffControl {
			found = append(found, socket)
		}
	}
	return found
}

// stored are the sockets the service manager keeps.
func (s *Successor) stored() []systemd.Socket {
	var list []systemd.Socket
	for i, socket := range s.sockets {
		if s.manifest.Sockets[i].Stored {
			list = append(list, socket)
		}
	}
	return list
}
