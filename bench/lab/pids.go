package lab

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// pidsIn lists the processes whose network namespace is the file ns. Those
// that end meanwhile are left out.
func pidsIn(ns fs.FileInfo) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		got, err := os.Stat(filepath.Join("/proc", e.Name(), "ns/net"))
		if err == nil && os.SameFile(got, ns) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// killAll kills the processes whose network namespace is the file ns, again and
// again until none is left, since they may be starting others.
func killAll(ns fs.FileInfo) error {
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		pids, err := pidsIn(ns)
		if err != nil || len(pids) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes %v do not end", pids)
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}
