package lab

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
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
