package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sys/unix"

	"3proxyd/ipc"
)

// moveOut is one move of sessions to another worker. Its methods run on a
// goroutine of its own, but for those that say otherwise.
type moveOut struct {
	w     *Worker
	conn  *ipc.Conn
	order ipc.MoveOut
	id    uint32 // of the supervisor's message
	// wake says that there may be something to do, superseded that nothing
	// is to be followed up any more.
	wake       chan struct{}
	superseded chan struct{}

	services map[serviceKey]int
	result   ipc.Moved
	reported bool

	// The rest belongs to the loop. tried are the sessions that have been
	// offered, columns those of the sessions handed over.
	tried   map[uint64]bool
	columns map[int]bool
	// wanted are the only sessions to offer, nil for all.
	wanted  map[uint64]bool
	closing bool
}

// serviceKey is what sessions have in common that the target is told once.
type serviceKey struct {
	v          *service
	oldSecrets bool
}

// leaver is a session on its way out.
type leaver struct {
	s       *session
	f       *frozen
	id      uint32
	service serviceKey
	message ipc.MoveSession
	// committed says that the target owns the session.
	committed bool
}

func newMoveOut(w *Worker, m *ipc.Message) (*moveOut, error) {
	out := &moveOut{
		w: w, id: m.ID,
		wake:       make(chan struct{}, 1),
		superseded: make(chan struct{}),
		services:   map[serviceKey]int{},
		tried:      map[uint64]bool{},
		columns:    map[int]bool{},
	}
	if err := m.Decode(&out.order); err != nil {
		return nil, err
	}
	var err error
	out.conn, err = moveChannel(m)
	return out, err
}

// moveChannel takes the descriptor of a message about a move.
func moveChannel(m *ipc.Message) (*ipc.Conn, error) {
	if len(m.FDs) != 1 {
		return nil, fmt.Errorf("%d descriptors instead of 1", len(m.FDs))
	}
	conn, err := ipc.NewMoveConn(m.FDs[0])
	if err == nil {
		m.FDs = nil
	}
	return conn, err
}

// kick has the goroutine look again; it may be called from the loop.
func (m *moveOut) kick() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// endFollowing is called from the loop.
func (m *moveOut) endFollowing() {
	if !m.closing {
		m.closing = true
		close(m.superseded)
	}
}

func (m *moveOut) refuse(reason string) {
	m.conn.Close()
	m.w.reply(ipc.MsgMoved, m.id, ipc.Moved{Error: reason})
}

func (m *moveOut) run() {
	err := m.greet()
	if err == nil {
		m.pick()
		err = m.moveAll()
	}
	settle := true
	if err == nil || errors.Is(err, errTargetFull) {
		settle = m.end() != nil
	}
	m.conn.Close()
	_, _ = onLoop(m.w, func(give func(bool)) {
		m.w.moveOutEnded(m, settle)
		give(true)
	})
	m.report(err)
}

// report tells the supervisor, once.
func (m *moveOut) report(err error) {
	if err != nil {
		slog.Warn("moving sessions away", "error", err)
	}
	if m.reported {
		return
	}
	m.reported = true
	if err != nil {
		m.result.Error = err.Error()
	}
	m.w.reply(ipc.MsgMoved, m.id, m.result)
}

// greet agrees with the target upon the version.
func (m *moveOut) greet() error {
	w := m.w
	err := m.conn.Send(ipc.MsgMoveHello, 0, ipc.MoveHello{
		MinVersion: ipc.MinMoveVersion, Version: ipc.MoveVersion,
		Row: w.row, Incarnation: w.shm.Incarnation(w.row),
	})
	if err != nil {
		return err
	}
	var hi ipc.MoveWelcome
	if err := m.receive(ipc.MsgMoveWelcome, &hi); err != nil {
		return fmt.Errorf("the target's greeting: %w", err)
	}
	switch {
	case hi.Error != "":
		return errors.New(hi.Error)
	case hi.Version < ipc.MinMoveVersion || hi.Version > ipc.MoveVersion:
		return fmt.Errorf("the target chose version %d", hi.Version)
	}
	return nil
}

// receive waits for the target's next message.
func (m *moveOut) receive(want ipc.Type, body any) error {
	_ = m.conn.SetRecvDeadline(time.Now().Add(moveTimeout))
	msg, err := m.conn.Recv()
	if err != nil {
		return err
	}
	defer msg.CloseFDs()
	if msg.Type != want {
		return fmt.Errorf("message type %d instead of %d", msg.Type, want)
	}
	if body == nil {
		return nil
	}
	return msg.Decode(body)
}

// moveAll moves sessions until none is left to move.
func (m *moveOut) moveAll() error {
	for {
		batch, more := m.nextBatch()
		if len(batch) > 0 {
			if err := m.hand(batch); err != nil {
				return err
			}
			continue
		}
		if !more {
			return nil
		}
		m.report(nil)
		select {
		case <-m.wake:
		case <-m.superseded:
			return nil
		}
	}
}

// nextBatch freezes some sessions; more says that others may follow later.
func (m *moveOut) nextBatch() (batch []*leaver, more bool) {
	type result struct {
		batch []*leaver
		more  bool
	}
	r, _ := onLoop(m.w, func(give func(result)) {
		m.freezeSome(func(batch []*leaver) {
			more := m.order.Follow && !(m.w.draining && m.w.sessions.count == 0)
			give(result{batch, more && !m.closing})
		})
	})
	return r.batch, r.more
}

// freezeSome freezes the next sessions; it runs on the loop.
func (m *moveOut) freezeSome(done func([]*leaver)) {
	var batch []*leaver
	waiting, size := 1, 0
	ready := func() {
		if waiting--; waiting == 0 {
			done(batch)
		}
	}
	for _, s := range m.choose(moveBatch) {
		if size >= moveBatchBytes {
			delete(m.tried, s.id)
			continue
		}
		waiting++
		size += s.cli.Pending() + s.srv.Pending()
		s.freeze(func(f *frozen) {
			if !f.canLeave() {
				m.result.Kept++
				s.takeBack(f)
			} else {
				l := &leaver{s: s, f: f, id: uint32(s.id), service: s.movedService()}
				s.export(f, &l.message)
				batch = append(batch, l)
			}
			ready()
		})
	}
	ready()
}

// choose returns the next sessions to offer, at most n; it runs on the loop.
func (m *moveOut) choose(n int) []*session {
	if m.order.Sessions > 0 {
		n = min(n, m.order.Sessions-len(m.tried))
	}
	var list []*session
	for s := m.w.sessions.head; s != nil && len(list) < n; s = s.next {
		if !m.tried[s.id] && (m.wanted == nil || m.wanted[s.id]) && s.movable() {
			m.tried[s.id] = true
			list = append(list, s)
		}
	}
	return list
}

var errTargetFull = errors.New("the target takes no more")

// hand offers a batch to the target and commits what it takes. After an error
// all that is not committed goes on here.
func (m *moveOut) hand(batch []*leaver) error {
	err := m.offer(batch)
	full := false
	for i := 0; err == nil && i < len(batch); i++ {
		var answer ipc.MoveAnswer
		if answer, err = m.answer(batch[i].id); err != nil {
			break
		}
		full = full || answer.Full
		if answer.Error != "" {
			continue
		}
		err = m.conn.Send(ipc.MsgMoveCommit, batch[i].id, nil)
		batch[i].committed = err == nil
	}
	m.settle(batch)
	if err == nil && full {
		err = errTargetFull
	}
	return err
}

// offer sends a batch.
func (m *moveOut) offer(batch []*leaver) error {
	for _, l := range batch {
		ref, err := m.serviceRef(l.service)
		if err != nil {
			return err
		}
		l.message.Service = ref
		if err := m.conn.Send(ipc.MsgMoveSession, l.id, &l.message, int(l.f.cli.FD), int(l.f.srv.FD)); err != nil {
			return err
		}
		if err := m.sendOutput(ipc.MsgMoveToClient, l.id, l.f.cli.Output); err != nil {
			return err
		}
		if err := m.sendOutput(ipc.MsgMoveToServer, l.id, l.f.srv.Output); err != nil {
			return err
		}
	}
	return nil
}

func (m *moveOut) sendOutput(t ipc.Type, id uint32, p []byte) error {
	for len(p) > 0 {
		n := min(len(p), ipc.MoveChunk)
		if err := m.conn.Send(t, id, ipc.Raw(p[:n])); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// serviceRef describes a service to the target the first time.
func (m *moveOut) serviceRef(key serviceKey) (int, error) {
	if ref, ok := m.services[key]; ok {
		return ref, nil
	}
	v := key.v
	data, err := json.Marshal(v.Service)
	if err != nil {
		return 0, err
	}
	ref := len(m.services) + 1
	m.services[key] = ref
	log, ok := onLoop(m.w, func(give func(int)) { give(v.lendLog()) })
	var fds []int
	if ok && log >= 0 {
		defer unix.Close(log)
		fds = append(fds, log)
	}
	return ref, m.conn.Send(ipc.MsgMoveService, 0, ipc.MoveService{
		Ref: ref, Column: v.column, MaxConn: int(v.maxConn), Config: data, OldSecrets: key.oldSecrets,
	}, fds...)
}

// answer waits for what the target says to one session.
func (m *moveOut) answer(id uint32) (ipc.MoveAnswer, error) {
	var a ipc.MoveAnswer
	_ = m.conn.SetRecvDeadline(time.Now().Add(moveTimeout))
	msg, err := m.conn.Recv()
	if err != nil {
		return a, fmt.Errorf("the target's answer: %w", err)
	}
	defer msg.CloseFDs()
	if msg.Type != ipc.MsgMoveAnswer || msg.ID != id {
		return a, fmt.Errorf("message type %d about session %d instead of an answer about %d", msg.Type, msg.ID, id)
	}
	return a, msg.Decode(&a)
}

// settle forgets the sessions of a batch that have moved and lets the others
// go on.
func (m *moveOut) settle(batch []*leaver) {
	for _, l := range batch {
		if l.committed {
			m.result.Sessions++
		} else {
			m.result.Kept++
		}
	}
	_, _ = onLoop(m.w, func(give func(bool)) {
		for _, l := range batch {
			if l.committed {
				m.columns[l.s.svc.column] = true
				l.s.handedOver(l.f)
			} else {
				l.s.takeBack(l.f)
			}
		}
		give(true)
	})
}

// end waits until the target has carried out all commits.
func (m *moveOut) end() error {
	if err := m.conn.Send(ipc.MsgMoveEnd, 0, nil); err != nil {
		return err
	}
	return m.receive(ipc.MsgMoveEnd, nil)
}
