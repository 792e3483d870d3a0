package relay

type sourceKind uint8

const (
	sourceFree sourceKind = iota
	sourceConn
	sourceListener
	sourceWaker
	sourceDetaching
	sourcePacket
)

// source is an entry of the table that the name of an event points into.
type source struct {
	conn *Conn // of sourceConn
	gen  uint32
	kind sourceKind
}

// sourceBlock is the number of entries by which the table grows.
const sourceBlock = 1024

// sourceTable has an entry, the slot, for everything that events come from. An
// entry used again has another generation. The table grows by blocks, so that
// growing copies nothing and entries stay where they are.
type sourceTable struct {
	blocks []*[sourceBlock]source
	used   uint32 // slots that have ever been taken
	free   []uint32
	gen    uint32
	// packets has the datagram sockets, in blocks that go with those of the
	// table and are there when one was needed.
	packets []*[sourceBlock]*PacketConn
	// What few entries are is kept beside the table.
	listeners map[uint32]*Listener
	detaching map[uint32]*detaching
}

func (t *sourceTable) init() {
	t.listeners = make(map[uint32]*Listener)
	t.detaching = make(map[uint32]*detaching)
}

func (t *sourceTable) at(slot uint32) *source {
	return &t.blocks[slot/sourceBlock][slot%sourceBlock]
}

// take enters a source under a generation of its own; c is nil unless kind is
// sourceConn.
func (t *sourceTable) take(kind sourceKind, c *Conn) (slot, gen uint32) {
	t.gen++
	if t.gen == 0 {
		t.gen = 1
	}
	if n := len(t.free); n > 0 {
		slot = t.free[n-1]
		t.free = t.free[:n-1]
	} else {
		slot = t.used
		t.used++
		if slot%sourceBlock == 0 {
			t.blocks = append(t.blocks, new([sourceBlock]source))
		}
	}
	*t.at(slot) = source{conn: c, gen: t.gen, kind: kind}
	return slot, t.gen
}

// takeListener enters a listener.
func (t *sourceTable) takeListener(s *Listener) (slot, gen uint32) {
	slot, gen = t.take(sourceListener, nil)
	t.listeners[slot] = s
	return slot, gen
}

// takePacket enters a datagram socket.
func (t *sourceTable) takePacket(c *PacketConn) (slot, gen uint32) {
	slot, gen = t.take(sourcePacket, nil)
	block := int(slot / sourceBlock)
	for len(t.packets) <= block {
		t.packets = append(t.packets, nil)
	}
	if t.packets[block] == nil {
		t.packets[block] = new([sourceBlock]*PacketConn)
	}
	t.packets[block][slot%sourceBlock] = c
	return slot, gen
}

// packet returns the datagram socket of an entry of that kind.
func (t *sourceTable) packet(slot uint32) *PacketConn {
	return t.packets[slot/sourceBlock][slot%sourceBlock]
}

// detach gives the entry of a connection to what is left of it.
func (t *sourceTable) detach(slot uint32, w *detaching) {
	s := t.at(slot)
	s.kind, s.conn = sourceDetaching, nil
	t.detaching[slot] = w
}

// release frees an entry.
func (t *sourceTable) release(slot uint32) {
	s := t.at(slot)
	switch s.kind {
	case sourceListener:
		delete(t.listeners, slot)
	case sourceDetaching:
		delete(t.detaching, slot)
	case sourcePacket:
		t.packets[slot/sourceBlock][slot%sourceBlock] = nil
	}
	*s = source{}
	t.free = append(t.free, slot)
}
