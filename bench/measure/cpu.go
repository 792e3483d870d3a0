// Package measure reads what a run costs: CPU time of CPUs and processes,
// memory, system calls, and what other processes took meanwhile.
package measure

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tick is the unit of times in /proc/stat and /proc/PID/stat, proc_stat(5):
// USER_HZ is 100 on every architecture Go runs on.
const tick = 10 * time.Millisecond

// CPUTime is the time one CPU spent since boot.
type CPUTime struct {
	// Idle includes waiting for disks; Steal is what the hypervisor took.
	Idle, Steal time.Duration
}

// ReadCPUs returns the times of all CPUs by number, from /proc/stat.
func ReadCPUs() (map[int]CPUTime, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return nil, fmt.Errorf("read CPU times: %w", err)
	}
	return parseCPUs(text)
}

var errStat = errors.New("unexpected format of /proc/stat")

func parseCPUs(text []byte) (map[int]CPUTime, error) {
	cpus := make(map[int]CPUTime)
	for scan := bufio.NewScanner(bytes.NewReader(text)); scan.Scan(); {
		f := strings.Fields(scan.Text())
		if len(f) < 9 || !strings.HasPrefix(f[0], "cpu") || f[0] == "cpu" {
			continue
		}
		cpu, err := strconv.Atoi(f[0][len("cpu"):])
		if err != nil {
			return nil, errStat
		}
		var t [8]time.Duration
		for i := range t {
			n, err := strconv.ParseInt(f[i+1], 10, 64)
			if err != nil || n < 0 {
				return nil, errStat
			}
			t[i] = time.Duration(n) * tick
		}
		cpus[cpu] = CPUTime{Idle: t[3] + t[4], Steal: t[7]}
	}
	if len(cpus) == 0 {
		return nil, errStat
	}
	return cpus, nil
}

// ProcessCPU returns the user and system time of a process and its threads
// since it started, to the nanosecond, from its CPU clock, clock_getcpuclockid(3).
func ProcessCPU(pid int) (time.Duration, error) {
	const schedClock = 2 // CPUCLOCK_SCHED of a whole process
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^uint32(pid)<<3|schedClock), &ts); err != nil {
		return 0, fmt.Errorf("CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// ProcessesCPU adds up ProcessCPU; processes that have ended are left out.
func ProcessesCPU(pids []int) time.Duration {
	var sum time.Duration
	for _, pid := range pids {
		if d, err := ProcessCPU(pid); err == nil {
			sum += d
		}
	}
	return sum
}
