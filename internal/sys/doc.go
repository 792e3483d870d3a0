// Package sys holds the raw system calls of the event loop.
//
// The functions of nb_unsafe.go never block: every descriptor given to them is
// non-blocking, so they enter the kernel by RawSyscall, without telling the Go
// scheduler. They return the kernel's errno unboxed; 0 is success. None of
// them takes ownership of a descriptor. EpollWait and Uring.Enter are the
// calls that can wait, and come in both families (epoll_unsafe.go,
// uring_unsafe.go).
//
// unsafe is used in the files named *_unsafe.go only.
package sys
