package wire

// packet is one that is under way.
type packet struct {
	due  int64 // when it comes out, in nanoseconds
	data []byte
	side int // the end it goes to
}

// heap holds packets by due, the earliest first.
type heap []packet

func (h *heap) push(p packet) {
	q := append(*h, p)
	i := len(q) - 1
	for i > 0 {
		up := (i - 1) / 2
		if q[up].due <= q[i].due {
			break
		}
		q[up], q[i] = q[i], q[up]
		i = up
	}
	*h = q
}

// pop removes and returns the earliest packet of a heap that is not empty.
func (h *heap) pop() packet {
	q := *h
	first, last := q[0], len(q)-1
	q[0] = q[last]
	q[last] = packet{}
	q = q[:last]
	for i := 0; ; {
		least := i
		for _, child := range [2]int{2*i + 1, 2*i + 2} {
			if child < last && q[child].due < q[least].due {
				least = child
			}
		}
		if least == i {
			break
		}
		q[i], q[least] = q[least], q[i]
		i = least
	}
	*h = q
	return first
}
