package measure

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// PSS returns the memory of processes in bytes, the sum of their proportional
// set sizes from /proc/PID/smaps_rollup, proc_pid_smaps(5). Processes that have
// ended are left out.
func PSS(pids []int) (int64, error) {
	var sum int64
	for _, pid := range pids {
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "smaps_rollup"))
		if err != nil {
			continue
		}
		n, err := parsePSS(text)
		if err != nil {
			return 0, fmt.Errorf("process %d: %w", pid, err)
		}
		sum += n
	}
	return sum, nil
}

func parsePSS(text []byte) (int64, error) {
	for scan := bufio.NewScanner(bytes.NewReader(text)); scan.Scan(); {
		value, ok := strings.CutPrefix(scan.Text(), "Pss:")
		if !ok {
			continue
		}
		kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(value, "kB")), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("value of Pss in smaps_rollup: %w", err)
		}
		return kb << 10, nil
	}
	return 0, errors.New("smaps_rollup has no Pss")
}
