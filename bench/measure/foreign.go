package measure

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// taskStat is the CPU time of a process and of the children it has waited for.
type taskStat struct {
	ppid  int
	flags uint64
	time  time.Duration
}

// kernelThread is PF_KTHREAD of the kernel's sched.h.
const kernelThread = 0x00200000

// ForeignTime returns the CPU time used since boot by processes that are
// neither kernel threads nor listed in own. Time of children counts once their
// parent has waited for them, so that the difference of two calls holds also
// what ran and ended in between.
func ForeignTime(own map[int]bool) (time.Duration, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, fmt.Errorf("list processes: %w", err)
	}
	var sum time.Duration
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || own[pid] {
			continue
		}
		text, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue // it has ended
		}
		st, err := parseTask(string(text))
		if err != nil {
			return 0, err
		}
		if st.flags&kernelThread == 0 && !own[st.ppid] {
			sum += st.time
		}
	}
	return sum, nil
}

// parseTask reads /proc/PID/stat, proc_pid_stat(5). The name in field 2 may
// hold anything, so fields are counted from its end.
func parseTask(text string) (taskStat, error) {
	i := strings.LastIndexByte(text, ')')
	f := strings.Fields(text[i+1:])
	if i < 0 || len(f) < 15 {
		return taskStat{}, fmt.Errorf("unexpected format of /proc/PID/stat")
	}
	var st taskStat
	var err error
	if st.ppid, err = strconv.Atoi(f[1]); err != nil {
		return taskStat{}, fmt.Errorf("parent in /proc/PID/stat: %w", err)
	}
	if st.flags, err = strconv.ParseUint(f[6], 10, 64); err != nil {
		return taskStat{}, fmt.Errorf("flags in /proc/PID/stat: %w", err)
	}
	for _, word := range f[11:15] {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return taskStat{}, fmt.Errorf("times in /proc/PID/stat: %w", err)
		}
		st.time += time.Duration(n) * tick
	}
	return st, nil
}
