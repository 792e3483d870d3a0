package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"reflect"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"3proxyd/acl"
	"3proxyd/config"
	"3proxyd/ipc"
)

// moveIn is a channel on which another worker hands sessions over. Its methods
// run on a goroutine of its own, but for those that say otherwise.
type moveIn struct {
	w     *Worker
	conn  *ipc.Conn
	hello ipc.MoveHello
	// services are those the source has described.
	services map[int]*service
	// coming is the session whose output is still to come; parked are those
	// that have been answered and that neither worker touches.
	coming *parked
	parked map[uint32]*parked
	// commits counts those that the loop has not carried out.
	commits sync.WaitGroup
}

// parked is a session that is complete but not this worker's yet.
type parked struct {
	id      uint32
	svc     *service
	message ipc.MoveSession
	f       frozen
}

const (
	maxParked = 4 * moveBatch
	// commitRetry is the pause before a place is taken over once more that
	// could not be, because others were at it.
	commitRetry = 10 * time.Millisecond
)

func newMoveIn(w *Worker, m *ipc.Message) (*moveIn, error) {
	conn, err := moveChannel(m)
	if err != nil {
		return nil, err
	}
	return &moveIn{w: w, conn: conn, services: map[int]*service{}, parked: map[uint32]*parked{}}, nil
}

func (m *moveIn) run() {
	// The loop may end meanwhile; nothing is parked then.
	finished := make(chan struct{})
	go func() {
		select {
		case <-m.w.moves.over:
			m.conn.Close()
		case <-finished:
		}
	}()
	err := m.greet()
	for err == nil {
		err = m.next()
	}
	m.commits.Wait()
	if errors.Is(err, errMoveEnd) {
		err = m.conn.Send(ipc.MsgMoveEnd, 0, nil)
	}
	close(finished)
	m.conn.Close()
	if err != nil && !errors.Is(err, io.EOF) && !m.w.moves.isOver() {
		slog.Warn("taking sessions in", "error", err)
	}
	m.dropParked()
}

// errMoveEnd is the error of next for MsgMoveEnd.
var errMoveEnd = errors.New("the source has ended")

func (m *moveIn) greet() error {
	_ = m.conn.SetRecvDeadline(time.Now().Add(moveTimeout))
	msg, err := m.conn.Recv()
	if err != nil {
		return err
	}
	defer msg.CloseFDs()
	if msg.Type != ipc.MsgMoveHello {
		return fmt.Errorf("message type %d instead of a greeting", msg.Type)
	}
	if err := msg.Decode(&m.hello); err != nil {
		return err
	}
	hi := ipc.AnswerMoveHello(m.hello)
	if hi.Error == "" && (m.hello.Row < 0 || m.hello.Row >= ipc.MaxRows || m.hello.Row == m.w.row) {
		hi = ipc.MoveWelcome{Error: fmt.Sprintf("row %d is not that of another worker", m.hello.Row)}
	}
	if err := m.conn.Send(ipc.MsgMoveWelcome, 0, hi); err != nil {
		return err
	}
	if hi.Error != "" {
		return errors.New(hi.Error)
	}
	return nil
}

// next takes one message. A source that is silent while sessions stand still
// is given up; one that only follows sessions up may be silent for long.
func (m *moveIn) next() error {
	var deadline time.Time
	if len(m.parked) > 0 || m.coming != nil {
		deadline = time.Now().Add(2 * moveTimeout)
	}
	_ = m.conn.SetRecvDeadline(deadline)
	msg, err := m.conn.Recv()
	if err != nil {
		return err
	}
	defer msg.CloseFDs()
	if m.coming != nil && msg.Type != ipc.MsgMoveToClient && msg.Type != ipc.MsgMoveToServer {
		return fmt.Errorf("message type %d before the output of session %d was complete", msg.Type, m.coming.id)
	}
	switch msg.Type {
	case ipc.MsgMoveService:
		return m.service(msg)
	case ipc.MsgMoveSession:
		return m.session(msg)
	case ipc.MsgMoveToClient, ipc.MsgMoveToServer:
		return m.output(msg)
	case ipc.MsgMoveCommit:
		return m.commit(msg.ID)
	case ipc.MsgMoveAbort:
		return m.abort(msg.ID)
	case ipc.MsgMoveEnd:
		return errMoveEnd
	}
	return fmt.Errorf("message type %d is not known", msg.Type)
}

// service takes the description of a service.
func (m *moveIn) service(msg *ipc.Message) error {
	var body ipc.MoveService
	if err := msg.Decode(&body); err != nil {
		return err
	}
	cfg := new(config.Service)
	if err := json.Unmarshal(body.Config, cfg); err != nil {
		return fmt.Errorf("service: %w", err)
	}
	if body.Column < 0 || body.Column >= ipc.MaxColumns || body.MaxConn < 0 || len(m.services) >= ipc.MaxColumns {
		return fmt.Errorf("service %s: column %d, maxconn %d", cfg.ID, body.Column, body.MaxConn)
	}
	log := -1
	if len(msg.FDs) == 1 {
		log, msg.FDs = msg.FDs[0], nil
	}
	type result struct {
		v   *service
		err error
	}
	r, ok := onLoop(m.w, func(give func(result)) {
		m.w.borrowLog(cfg, log)
		v, err := m.w.foreignService(cfg, body)
		give(result{v, err})
	})
	switch {
	case !ok:
		return io.EOF
	case r.err != nil:
		return fmt.Errorf("service %s: %w", cfg.ID, r.err)
	}
	m.services[body.Ref] = r.v
	return nil
}

// foreignService returns the service in force if it is the same, else one for
// the sessions that come only: they keep the settings they began with.
func (w *Worker) foreignService(cfg *config.Service, body ipc.MoveService) (*service, error) {
	now := w.services[cfg.ID]
	if now != nil && !body.OldSecrets && now.column == body.Column && reflect.DeepEqual(now.Service, cfg) {
		return now, nil
	}
	// The rules have done their work.
	cfg.ACL = -1
	g := &generation{id: w.gen, logs: maps.Clone(w.logs)}
	slot := ipc.ServiceSlot{Column: body.Column, MaxConn: body.MaxConn}
	v, err := newService(w, g, &config.Config{}, cfg, slot, nil, acl.NewUsers(nil))
	if err == nil && now != nil && !body.OldSecrets {
		v.policy = now.policy // knows the users' passwords
	}
	return v, err
}

// session takes a session and its descriptors.
func (m *moveIn) session(msg *ipc.Message) error {
	p := &parked{id: msg.ID}
	if err := msg.Decode(&p.message); err != nil {
		return err
	}
	if err := p.message.Validate(); err != nil {
		return fmt.Errorf("session %d: %w", msg.ID, err)
	}
	p.svc = m.services[p.message.Service]
	switch {
	case p.svc == nil:
		return fmt.Errorf("session %d: service %d has not been described", msg.ID, p.message.Service)
	case m.parked[msg.ID] != nil || len(m.parked) >= maxParked:
		return fmt.Errorf("session %d is one too many", msg.ID)
	case len(msg.FDs) != 2:
		return fmt.Errorf("session %d: %d descriptors instead of 2", msg.ID, len(msg.FDs))
	}
	for _, fd := range msg.FDs {
		if err := checkStream(fd); err != nil {
			return fmt.Errorf("session %d: %w", msg.ID, err)
		}
	}
	p.f.cli.FD, p.f.srv.FD = int32(msg.FDs[0]), int32(msg.FDs[1])
	msg.FDs = nil
	m.coming = p
	return m.whenComplete()
}

// checkStream makes sure that the loop can serve a descriptor.
func checkStream(fd int) error {
	typ, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || typ != unix.SOCK_STREAM {
		return errors.New("a descriptor is not a stream socket")
	}
	return unix.SetNonblock(fd, true)
}

// output takes bytes that wait for a peer of the session that is coming.
func (m *moveIn) output(msg *ipc.Message) error {
	p := m.coming
	if p == nil || p.id != msg.ID {
		return fmt.Errorf("output of session %d, which is not coming", msg.ID)
	}
	to, announced := &p.f.cli, p.message.ClientConn.Output
	if msg.Type == ipc.MsgMoveToServer {
		to, announced = &p.f.srv, p.message.ServerConn.Output
	}
	if len(to.Output)+len(msg.Body) > announced || len(msg.Body) == 0 {
		return fmt.Errorf("session %d: %d bytes of output after %d of %d", msg.ID, len(msg.Body), len(to.Output), announced)
	}
	if to.Output == nil {
		to.Output = make([]byte, 0, announced)
	}
	to.Output = append(to.Output, msg.Body...)
	return m.whenComplete()
}

// whenComplete parks the session that is coming and answers, once it is whole.
func (m *moveIn) whenComplete() error {
	p := m.coming
	if len(p.f.cli.Output) < p.message.ClientConn.Output || len(p.f.srv.Output) < p.message.ServerConn.Output {
		return nil
	}
	answer, ok := onLoop(m.w, func(give func(ipc.MoveAnswer)) { give(m.w.makeRoom()) })
	if !ok {
		return io.EOF
	}
	m.coming = nil
	if answer.Error != "" {
		p.f.close()
	} else {
		m.parked[p.id] = p
	}
	return m.conn.Send(ipc.MsgMoveAnswer, p.id, answer)
}

// makeRoom reserves what one more session needs; it runs on the loop.
func (w *Worker) makeRoom() ipc.MoveAnswer {
	if w.draining {
		return ipc.MoveAnswer{Error: "the target drains", Full: true}
	}
	if w.loop.Descriptors()+2*(w.moves.arriving+1) > w.maxConnFDs() && w.pool.evict(2) == 0 {
		w.loopCell.Add(ipc.FDPauses, 1)
		return ipc.MoveAnswer{Error: "the target has no descriptors left", Full: true}
	}
	w.moves.arriving++
	return ipc.MoveAnswer{}
}

// commit makes a parked session this worker's.
func (m *moveIn) commit(id uint32) error {
	p := m.parked[id]
	if p == nil {
		return fmt.Errorf("session %d is committed but not here", id)
	}
	delete(m.parked, id)
	m.commits.Add(1)
	m.w.loop.Post(func() { m.takeOver(p) })
	return nil
}

// takeOver takes the place and the session; it runs on the loop.
func (m *moveIn) takeOver(p *parked) {
	w := m.w
	code := codeOK
	switch w.shm.Transfer(p.svc.column, m.hello.Row, m.hello.Incarnation, w.row) {
	case ipc.LedgerBusy:
		time.AfterFunc(commitRetry, func() { w.loop.Post(func() { m.takeOver(p) }) })
		return
	case ipc.GiverGone:
		// Its places have been given back, perhaps to others.
		if !w.shm.Acquire(w.row, p.svc.column, w.shm.Rows(), p.svc.maxConn) {
			w.warnMaxConn(p.svc, connectionsWait)
			code = codeNoResources
		}
	}
	w.moves.arriving--
	defer m.commits.Done()
	if code != codeOK {
		p.f.close()
		w.stopWhenIdle()
		return
	}
	w.arrive(p.svc, &p.message, &p.f)
}

// abort forgets a parked session: the source keeps it.
func (m *moveIn) abort(id uint32) error {
	p := m.parked[id]
	if p == nil {
		return fmt.Errorf("session %d is aborted but not here", id)
	}
	delete(m.parked, id)
	p.f.close()
	m.w.loop.Post(func() {
		m.w.moves.arriving--
		m.w.stopWhenIdle()
	})
	return nil
}

// dropParked forgets what has not been committed.
func (m *moveIn) dropParked() {
	if m.coming != nil {
		m.coming.f.close()
	}
	n := len(m.parked)
	for _, p := range m.parked {
		p.f.close()
	}
	m.w.loop.Post(func() {
		m.w.moves.arriving -= n
		m.w.moveInEnded(m)
	})
}
