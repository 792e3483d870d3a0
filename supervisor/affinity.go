package supervisor

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"3proxyd/config"
)

// WorkerCPUs returns the CPU of each worker of cfg: as many as cfg.Workers
// says, or one for each CPU the process may use (sched_getaffinity(2)).
func WorkerCPUs(cfg *config.Config) ([]int, error) {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return nil, os.NewSyscallError("sched_getaffinity", err)
	}
	return workerCPUs(cfg, &allowed)
}

func workerCPUs(cfg *config.Config, allowed *unix.CPUSet) ([]int, error) {
	cpus := cfg.CPUs
	for _, cpu := range cpus {
		if !allowed.IsSet(cpu) {
			return nil, fmt.Errorf("cpus: CPU %d does not exist or the process may not use it", cpu)
		}
	}
	if len(cpus) == 0 {
		cpus = listCPUs(allowed)
	}
	n := cfg.Workers
	if n == 0 {
		n = min(len(cpus), maxWorkers)
	}
	if n > maxWorkers {
		return nil, fmt.Errorf("workers: %d exceed %d", n, maxWorkers)
	}
	list := make([]int, n)
	for i := range list {
		list[i] = cpus[i%len(cpus)]
	}
	return list, nil
}

func listCPUs(set *unix.CPUSet) []int {
	var cpus []int
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

// pinned calls start on a thread that may only run on cpu: a process inherits
// the affinity of the thread that creates it, and so do all of its threads.
func pinned(cpu int, start func() error) error {
	runtime.LockOSThread()
	var before, only unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		runtime.UnlockOSThread()
		return os.NewSyscallError("sched_getaffinity", err)
	}
	only.Set(cpu)
	if err := unix.SchedSetaffinity(0, &only); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("pin to CPU %d: %w", cpu, os.NewSyscallError("sched_setaffinity", err))
	}
	startErr := start()
	if err := unix.SchedSetaffinity(0, &before); err != nil {
		// The thread stays locked, and ends with its goroutine.
		return fmt.Errorf("unpin: %w", os.NewSyscallError("sched_setaffinity", err))
	}
	runtime.UnlockOSThread()
	return startErr
}
