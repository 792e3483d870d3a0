package lab

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Pin moves the threads of this process, except those of roles, to cpus.
// Threads that start later inherit it.
func Pin(cpus []int) error {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("list threads: %w", err)
	}
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		if visiting(tid) {
			continue
		}
		if err := unix.SchedSetaffinity(tid, cpuSet(cpus)); err != nil && err != unix.ESRCH {
			return fmt.Errorf("use CPUs %v: %w", cpus, err)
		}
	}
	return nil
}

// visiting tells whether a thread of this process is in another network
// namespace than the process.
func visiting(tid int) bool {
	home, err1 := os.Stat("/proc/self/ns/net")
	there, err2 := os.Stat(fmt.Sprintf("/proc/self/task/%d/ns/net", tid))
	return err1 == nil && err2 == nil && !os.SameFile(home, there)
}
