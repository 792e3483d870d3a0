package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"3proxyd/ipc"
)

// attractTime bounds what is asked of an old generation, and the messages it
// sends.
const attractTime = 10 * time.Second

// attract has the old generations hand their sessions over to the workers of this
// daemon: those that cannot move yet follow when they can. The daemon they have
// been following may be gone.
func (d *daemon) attract(olds []*oldGeneration) {
	if len(olds) == 0 || !d.takeMoves() {
		return
	}
	for _, o := range olds {
		d.oldDone.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), attractTime)
			defer cancel()
			err := d.askOld(o, func(c *ipc.Client) error { return c.HandOver(ctx, os.Getpid()) })
			if err != nil && len(o.living()) > 0 && !d.isReplaced() {
				d.logf("the old generation (pid %d) keeps its sessions: %v", o.PID, err)
			}
		})
	}
}

// takeMoves begins to take sessions from old generations.
func (d *daemon) takeMoves() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.moves != nil {
		return true
	}
	socket, err := ipc.ListenMoves(ipc.Family(d.control.path))
	if err != nil {
		d.logf("warning: sessions of old generations are not taken over: %v", err)
		return false
	}
	d.moves = socket
	go func() {
		for {
			conn, peer, err := socket.Accept()
			if err != nil {
				return
			}
			if peer.UID != 0 && peer.UID != os.Geteuid() {
				_ = conn.Close()
				continue
			}
			go d.takeMovesFrom(conn)
		}
	}()
	return true
}

func (d *daemon) endMoves() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.moves != nil {
		_ = d.moves.Close()
	}
}

// takeMovesFrom carries out what one old generation asks for.
func (d *daemon) takeMovesFrom(conn *ipc.Conn) {
	defer conn.Close()
	conn.ForHandoff()
	if conn.SetRecvDeadline(time.Now().Add(attractTime)) != nil {
		return
	}
	for range ipc.MaxRows {
		m, err := conn.Recv()
		if err != nil {
			return
		}
		if m.Type == ipc.MsgHandoffMove {
			d.takeSessions(m)
		}
		m.CloseFDs()
	}
}

// handOver answers ipc.PathHandOver.
func (a *replacedAPI) handOver(w http.ResponseWriter, r *http.Request) {
	request, err := readBody[ipc.HandOverRequest](r.Body)
	if err == nil {
		err = a.daemon.handSessionsTo(request.PID)
	}
	answerResult(w, struct{}{}, err)
}

// handSessionsTo has the workers of a replaced daemon hand their sessions to the
// daemon of a process.
func (d *daemon) handSessionsTo(pid int) error {
	if !d.isReplaced() {
		return errors.New("this daemon has not been replaced")
	}
	conn, peer, err := ipc.DialMoves(ipc.Family(d.control.path), pid)
	if err != nil {
		return fmt.Errorf("daemon %d: %w", pid, err)
	}
	defer conn.Close()
	if peer.UID != 0 && peer.UID != os.Geteuid() {
		return fmt.Errorf("process %d is one of user %d", peer.PID, peer.UID)
	}
	var failed error
	for _, p := range d.allProcesses() {
		if err := d.handSessionsOver(conn, p); err != nil {
			failed = errors.Join(failed, fmt.Errorf("worker %d (pid %d): %w", p.slot.index, p.pid, err))
		}
	}
	return failed
}
