package supervisor

import (
	"fmt"

	"3proxyd/config"
	"3proxyd/ipc"
)

const (
	// fdReserve is the number of descriptors of a worker that belong to
	// neither connections, pipes nor listeners: logs, name server sockets,
	// epoll, the supervisor's socket, connections about to be refused.
	fdReserve = 64
	// supervisorLeast is the number of descriptors of the supervisor that are
	// neither listening sockets nor belong to a worker.
	supervisorLeast = 32
	// workerTasks is the number of threads a worker may have at most in
	// ordinary use, supervisorTasks that of the supervisor besides one for
	// each worker.
	workerTasks     = 16
	supervisorTasks = 16
	// startTasks is the number of threads of a process that has just been
	// started, supervisor, worker or launcher: 6 to 10 were counted.
	startTasks = 12

	// maxPipes bounds the pipes of one worker.
	maxPipes = 256
	// pipeSize is the size in bytes each pipe is asked to have. CPU seconds for
	// a GB, medians of three (ranges overlap): 16 streams, 64 KB 0.78, 128 KB
	// 0.74, 256 KB 0.68, 512 KB 0.72, 1 MB 0.75; one stream, 1.11, 0.83, 0.80,
	// 0.84, 0.85.
	pipeSize = 256 << 10
)

// Limits is what the machine allows a configuration.
type Limits struct {
	Status ipc.LimitStatus
	// MaxConn is the effective limit of each service, in their order.
	MaxConn []int
	// TotalMaxConn is the sum of what all services together can reach.
	TotalMaxConn int
	// MaxPipes and PipeSize are each worker's share of the pipes and the size
	// of each in bytes.
	MaxPipes int
	PipeSize int
	// Warnings name each shortfall and what mends it.
	Warnings []string
	// Fatal says why not even one connection is possible, and what mends it;
	// with it the configuration cannot be put in force.
	Fatal string
}

// need is what a configuration asks of the machine.
type need struct {
	workers   int
	services  int
	sockets   int // the listening sockets of all workers together
	explicit  int // the sum of the services' own limits
	unlimited int // the number of services without one
	backlog   int // the greatest
	root      bool
}

func needOf(cfg *config.Config, workers, euid int) need {
	n := need{workers: workers, services: len(cfg.Services), root: workerUID(cfg, euid) == 0}
	for _, s := range cfg.Services {
		if s.Listen.Unix != "" {
			n.sockets++
		} else {
			n.sockets += workers
		}
		n.backlog = max(n.backlog, s.Backlog)
		if s.MaxConn == 0 {
			n.unlimited++
		}
		n.explicit += s.MaxConn
	}
	return n
}

// workerUID returns the user id the workers of cfg run with.
func workerUID(cfg *config.Config, euid int) int {
	if cfg.SetUID != nil {
		return cfg.SetUID.ID
	}
	return euid
}

// CheckLimits says what the machine would allow cfg with the given number of
// workers, and changes nothing.
func CheckLimits(cfg *config.Config, workers int) Limits {
	return measure(systemMachine(), cfg, workers, false)
}

// measure computes the limits of cfg. With raise it first raises
// RLIMIT_NOFILE as far as the configuration needs and the system allows.
func measure(m machine, cfg *config.Config, workers int, raise bool) Limits {
	n := needOf(cfg, workers, m.euid)
	var l Limits
	l.MaxPipes, l.PipeSize = pipeShare(m, n)

	wanted := max(n.workerFDs(n.explicit+n.unlimitedShare(), l.MaxPipes), n.supervisorFDs())
	granted := m.grantableFDs(wanted)
	if raise {
		granted = m.raiseFDs(wanted)
	}
	// A pipe less is better than no connection.
	l.MaxPipes = max(0, min(l.MaxPipes, granted/8, (granted-n.workerFDs(1, 0))/2))
	l.setMaxConn(cfg, n, granted)

	share := 0
	if n.unlimited > 0 {
		share = ceilDiv(l.TotalMaxConn-n.explicit, n.workers)
	}
	l.Status.FDsNeeded = max(n.workerFDs(n.explicit+share, l.MaxPipes), n.supervisorFDs())
	l.Status.FDsGranted = granted
	l.Status.Somaxconn = m.somaxconn()
	l.Status.PidsMax = m.taskRoom().most
	l.Status.LocalPorts = m.localPorts()
	if least := n.leastFDs(); granted < least {
		l.Fatal = fmt.Sprintf(
			"a process needs at least %d descriptors, but only %d are granted: "+
				"set LimitNOFILE=%d in the unit, or `ulimit -n %d` before the start",
			least, granted, least, least)
	} else {
		l.Warnings = append(l.Warnings, fdWarnings(l)...)
	}
	l.Warnings = append(l.Warnings, taskWarnings(m, l, n)...)
	l.Warnings = append(l.Warnings, networkWarnings(l, n)...)
	return l
}

// workerFDs is the number of descriptors of a worker that holds conns
// connections, each with its two sockets, and all of its pipes.
func (n need) workerFDs(conns, pipes int) int {
	return 2*conns + 2*pipes + n.services + fdReserve
}

// supervisorFDs is the number of descriptors of the supervisor, which holds
// every slot's sockets.
func (n need) supervisorFDs() int {
	return n.services*n.workers + 4*n.workers + n.services + fdReserve
}

// leastFDs is the number of descriptors without which a worker, by its own
// rule, accepts no connection, or the supervisor cannot hold the sockets.
func (n need) leastFDs() int {
	return max(n.workerFDs(1, 0), n.sockets+4*n.workers+supervisorLeast)
}

// unlimitedShare is the part of the connections of services without a limit
// that one worker should be able to hold.
func (n need) unlimitedShare() int {
	if n.unlimited == 0 {
		return 0
	}
	return ceilDiv(config.DefaultMaxConn, n.workers)
}

// setMaxConn gives services without a limit what the descriptors of all
// workers allow.
func (l *Limits) setMaxConn(cfg *config.Config, n need, granted int) {
	each := (granted - n.workerFDs(0, l.MaxPipes)) / 2
	// The services' own limits come first, but leave the others half.
	each = max(each-n.explicit, each/2)
	allowed := max(1, min(config.DefaultMaxConn, n.workers*each))
	l.MaxConn = make([]int, len(cfg.Services))
	for i, s := range cfg.Services {
		l.MaxConn[i] = s.MaxConn
		if s.MaxConn == 0 {
			l.MaxConn[i] = allowed
		}
	}
	l.TotalMaxConn = n.explicit
	if n.unlimited > 0 {
		l.TotalMaxConn += allowed
	}
}

// pipeShare returns how many pipes each worker may have and of what size. The
// kernel counts the pages of all pipes of an unprivileged user and gives pipes
// beyond the budget a page or two (pipe(7)); a quarter of the budget is left to
// the user's other programs.
func pipeShare(m machine, n need) (pipes, size int) {
	size = min(pipeSize, m.pipeMaxSize())
	budget := m.pipeBudget()
	if n.root || budget == 0 {
		return maxPipes, size
	}
	share := budget / 4 * 3 / n.workers
	return min(maxPipes, share/size), size
}

func fdWarnings(l Limits) []string {
	if l.Status.FDsNeeded <= l.Status.FDsGranted {
		return nil
	}
	return []string{fmt.Sprintf(
		"a process needs %d descriptors for %s, but only %d are granted, %d too few: "+
			"set LimitNOFILE=%d in the unit, or `ulimit -n %d` before the start",
		l.Status.FDsNeeded, count(l.TotalMaxConn, "connection", "connections"), l.Status.FDsGranted, l.Status.FDsNeeded-l.Status.FDsGranted,
		l.Status.FDsNeeded, l.Status.FDsNeeded)}
}

func taskWarnings(m machine, l Limits, n need) []string {
	tasks := supervisorTasks + n.workers + (n.workers+1)*workerTasks
	var warnings []string
	if have := l.Status.PidsMax; have >= 0 && have < tasks {
		warnings = append(warnings, fmt.Sprintf(
			"%d workers may need %d tasks, but pids.max of the control group is %d, %d too few: set TasksMax=%d in the unit",
			n.workers, tasks, have, tasks-have, tasks))
	}
	if have, limited := m.userTasks(); limited && !n.root && have < tasks {
		warnings = append(warnings, fmt.Sprintf(
			"%d workers may need %d tasks, but the user may have %d (RLIMIT_NPROC), %d too few: "+
				"set LimitNPROC=%d in the unit, or `ulimit -u %d` before the start",
			n.workers, tasks, have, tasks-have, tasks, tasks))
	}
	return warnings
}

func networkWarnings(l Limits, n need) []string {
	var warnings []string
	if n.backlog > l.Status.Somaxconn {
		warnings = append(warnings, fmt.Sprintf(
			"a backlog of %d is cut to %d by the kernel: set `sysctl net.core.somaxconn=%d`",
			n.backlog, l.Status.Somaxconn, n.backlog))
	}
	if n.unlimited > 0 && n.explicit <= l.Status.LocalPorts && l.TotalMaxConn > l.Status.LocalPorts {
		warnings = append(warnings, fmt.Sprintf(
			"services without maxconn may reach %d connections, but there are %d local ports for connections to one server address and port: "+
				"set `sysctl net.ipv4.ip_local_port_range=\"1024 65535\"`, several external addresses, or maxconn",
			l.TotalMaxConn, l.Status.LocalPorts))
	}
	if n.explicit > l.Status.LocalPorts {
		warnings = append(warnings, fmt.Sprintf(
			"a maxconn of %d in all exceeds the %d local ports there are for connections to one server address and port, by %d: "+
				"set `sysctl net.ipv4.ip_local_port_range=\"1024 65535\"`, or use several external addresses",
			n.explicit, l.Status.LocalPorts, n.explicit-l.Status.LocalPorts))
	}
	return warnings
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
