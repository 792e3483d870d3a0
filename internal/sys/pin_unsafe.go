package sys

import _ "unsafe" // for linkname

// procPin and procUnpin are the runtime's; they cannot be removed or changed
// (go.dev/issue/67401).
//
//go:linkname procPin runtime.procPin
func procPin() int

//go:linkname procUnpin runtime.procUnpin
func procUnpin()

// Pin keeps the scheduler from preempting the calling goroutine until Unpin.
// Between them the goroutine must not block in any way that the scheduler
// knows of: no lock, no channel, no system call but a raw one.
func Pin() { procPin() }

// Unpin ends Pin. A request to preempt that came in the meantime is dropped
// when nothing but raw system calls was made: what wants the goroutine
// to stop for the sake of a collection asks again at once, what only wants it
// to share the processor asks again ten milliseconds later.
func Unpin() {
	drop()
	procUnpin()
}

// drop meets a pending request where every function meets it, at its beginning.
// It must be one that looks: one that calls another and is not inlined.
//
//go:noinline
func drop() { nothing() }

//go:noinline
func nothing() {}
