package supervisor

import (
	"context"

	"3proxyd/ipc"
)

// kickAdoption makes adoptLoop look at the slots again.
func (d *daemon) kickAdoption() {
	select {
	case d.adoptKick <- struct{}{}:
	default:
	}
}

// adoptLoop lets another worker serve the sockets of a slot whose own worker
// cannot be started for now, gives no sign of life, or is not configured any
// more, and takes them away again when it runs.
func (d *daemon) adoptLoop() {
	for {
		select {
		case <-d.running.Done():
			return
		case <-d.adoptKick:
			d.change.Lock()
			for _, s := range d.allSlots() {
				d.settleAdoption(s)
			}
			d.change.Unlock()
		}
	}
}

// settleAdoption does for one slot what its state asks for. The caller holds
// daemon.change.
func (d *daemon) settleAdoption(s *slot) {
	snap := d.acquire()
	defer d.release(snap)
	if snap == nil {
		return
	}

	d.mu.Lock()
	adopter, adopted := s.adopter, s.adopted
	runs := s.current != nil && s.current.state == stateRunning
	waits := s.retired || s.current == nil && s.failures > 1
	if runs && (s.retired || s.current.silence(d) > d.timing.quiet) {
		runs, waits = false, true
	}
	if adopter != nil && adopter.state != stateRunning {
		adopter, adopted = nil, nil
	}
	if waits && adopter == nil {
		adopter = d.chooseAdopter(s)
	}
	s.adopter, s.adopted = adopter, adopted
	d.mu.Unlock()

	switch {
	case adopter == nil:
	case runs:
		d.endAdoption(s, adopter)
	case waits:
		d.adopt(s, adopter, adopted, snap)
	}
}

// chooseAdopter returns the running process of another slot that has adopted
// the fewest, or nil. The caller holds daemon.mu.
func (d *daemon) chooseAdopter(orphan *slot) *process {
	load := map[*process]int{}
	for _, s := range d.slots {
		if s.adopter != nil {
			load[s.adopter]++
		}
	}
	var best *process
	for _, s := range d.slots {
		p := s.current
		if s == orphan || s.retired || p == nil || p.state != stateRunning || p.silence(d) > d.timing.quiet {
			continue
		}
		if best == nil || load[p] < load[best] {
			best = p
		}
	}
	return best
}

// adopt sends the adopter those of the slot's sockets it does not have.
func (d *daemon) adopt(s *slot, adopter *process, adopted map[string]*listener, snap *snapshot) {
	var files []passed
	for i, l := range snap.listeners {
		id := snap.cfg.Services[i].ID
		if !l.shared && s.index < l.slots() && adopted[id] != l {
			files = append(files, listenerFiles(l, id, s.index)...)
		}
	}
	adopter.talk.Lock()
	err := adopter.sendFiles(ipc.MsgAdopt, snap.gen, files)
	adopter.talk.Unlock()
	if err != nil {
		// It is dying; its end settles the adoption anew.
		d.logf("worker %d (pid %d) cannot take over the sockets of worker %d: %v", adopter.slot.index, adopter.pid, s.index, err)
		adopter.kill()
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.adopter == adopter {
		s.adopted = snap.byService()
	}
	if len(files) > 0 {
		d.logf("worker %d (pid %d) serves the sockets of worker %d", adopter.slot.index, adopter.pid, s.index)
	}
}

// endAdoption takes the sockets away when the slot's own worker accepts from
// them.
func (d *daemon) endAdoption(s *slot, adopter *process) {
	err := adopter.disown(context.Background(), d, s.index)
	d.mu.Lock()
	s.adopter, s.adopted = nil, nil
	d.mu.Unlock()
	if err != nil {
		d.logf("worker %d (pid %d) does not give back the sockets of worker %d: %v; killing it",
			adopter.slot.index, adopter.pid, s.index, err)
		adopter.kill()
	}
}
