package measure

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// taskStat is what is known of a process: the CPU time of its own, and that of
// the children it has waited for, with theirs.
type taskStat struct {
	ppid     int
	flags    uint64
	self     time.Duration
	children time.Duration
}

// kernelThread is PF_KTHREAD of the kernel's sched.h.
const kernelThread = 0x00200000

// Tasks are the processes of the machine at one moment, kernel threads left
// out.
type Tasks map[int]taskStat

// ReadTasks lists the processes.
func ReadTasks() (Tasks, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	tasks := make(Tasks)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue // it has ended
		}
		st, err := parseTask(string(text))
		if err != nil {
			return nil, err
		}
		if st.flags&kernelThread == 0 {
			tasks[pid] = st
		}
	}
	return tasks, nil
}

// Foreign returns the CPU time that processes not in own, and not children of
// those, used between two readings. What began and ended in between is seen in
// the time its parent was given when it waited for it; what such a process had
// used before the first reading is taken off again.
func Foreign(before, after Tasks, own map[int]bool) time.Duration {
	gone := make(map[int]time.Duration)
	for pid, st := range before {
		if _, lives := after[pid]; lives || own[pid] || own[st.ppid] {
			continue
		}
		heir := st.ppid
		for range before { // the chain is no longer than that
			parent, known := before[heir]
			if _, lives := after[heir]; lives || !known {
				break
			}
			heir = parent.ppid
		}
		gone[heir] += st.self + st.children
	}
	var sum time.Duration
	for pid, st := range after {
		if own[pid] || own[st.ppid] {
			continue
		}
		was := before[pid]
		sum += max(st.self-was.self, 0)
		sum += max(st.children-was.children-gone[pid], 0)
	}
	return sum
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
	var ticks [4]time.Duration
	for i, word := range f[11:15] {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return taskStat{}, fmt.Errorf("times in /proc/PID/stat: %w", err)
		}
		ticks[i] = time.Duration(n) * tick
	}
	st.self, st.children = ticks[0]+ticks[1], ticks[2]+ticks[3]
	return st, nil
}
