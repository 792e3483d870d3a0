package worker

import (
	"testing"
	"unsafe"
)

// The runtime adds 8 bytes to an object of more than 512 bytes with pointers, and
// its next size after 576 is 640 bytes.
func TestSessionSize(t *testing.T) {
	if n := unsafe.Sizeof(session{}); n > 568 {
		t.Errorf("a session has %d bytes: its allocation takes 640", n)
	}
	if n := unsafe.Sizeof(upstream{}); n > 208 {
		t.Errorf("an upstream has %d bytes: its allocation takes 224", n)
	}
}
