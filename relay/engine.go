package relay

import (
	"fmt"

	"3proxyd/internal/sys"
)

// Engine is the kernel interface that a Loop waits and works with.
type Engine uint8

// The engines. EngineAuto is io_uring where the kernel has and permits all that
// is needed, and epoll elsewhere: small messages cost 10 to 20 % less CPU time
// with io_uring under full load, and the same at partial load and in streams
// (ARCHITECTURE.md has the measurements).
const (
	EngineAuto Engine = iota
	EngineEpoll
	EngineURing
)

var engineNames = [...]string{"auto", "epoll", "io_uring"}

// String returns the name of the engine in the configuration.
func (e Engine) String() string { return engineNames[e] }

// EngineByName returns the engine of a name in the configuration; the empty
// name is auto.
func EngineByName(name string) (Engine, error) {
	if name == "" {
		return EngineAuto, nil
	}
	for i, n := range engineNames {
		if n == name {
			return Engine(i), nil
		}
	}
	return 0, fmt.Errorf("there is no engine %q", name)
}

// openEngine opens the ring or the epoll descriptor of a new loop.
func (l *Loop) openEngine(e Engine) error {
	if e == EngineEpoll {
		return l.openEpoll()
	}
	err := l.openRing()
	if err == nil {
		return nil
	}
	if e == EngineURing {
		return fmt.Errorf("engine io_uring: %w", err)
	}
	return l.openEpoll()
}

// Engine returns the engine in use.
func (l *Loop) Engine() Engine {
	if l.ring != nil {
		return EngineURing
	}
	return EngineEpoll
}

// poll waits for events with the engine, at most timeout milliseconds (-1:
// without limit), and returns how many have come; block waits as a call that
// the scheduler knows to block.
func (l *Loop) poll(timeout int, block bool) int {
	if l.ring != nil {
		return l.ring.poll(timeout, block)
	}
	return l.pollEpoll(timeout, block)
}

func (l *Loop) closeDescriptors() {
	if l.ring != nil {
		l.ring.close()
	} else {
		sys.Close(l.epfd)
	}
	sys.Close(l.wakefd)
}
