package supervisor

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// machine reads the limits of the system. Its functions can be replaced to try
// other systems.
type machine struct {
	euid      int
	readFile  func(path string) ([]byte, error)
	getrlimit func(resource int) (soft, hard uint64, err error)
	setNofile func(soft, hard uint64) error
}

func systemMachine() machine {
	return machine{
		euid:     os.Geteuid(),
		readFile: os.ReadFile,
		getrlimit: func(resource int) (uint64, uint64, error) {
			var r syscall.Rlimit
			err := syscall.Getrlimit(resource, &r)
			return r.Cur, r.Max, err
		},
		setNofile: func(soft, hard uint64) error {
			return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: soft, Max: hard})
		},
	}
}

// number reads a file that holds one number.
func (m machine) number(path string) (int, bool) {
	data, err := m.readFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(data)))
	return n, err == nil
}

func (m machine) numberOr(path string, otherwise int) int {
	if n, ok := m.number(path); ok {
		return n
	}
	return otherwise
}

// somaxconn is the kernel's bound of a backlog (listen(2)).
func (m machine) somaxconn() int { return m.numberOr("/proc/sys/net/core/somaxconn", 4096) }

// pipeBudget is the number of bytes the pipes of an unprivileged user may
// have, or 0 for no limit (pipe(7)).
func (m machine) pipeBudget() int {
	return m.numberOr("/proc/sys/fs/pipe-user-pages-soft", 16384) * os.Getpagesize()
}

// pipeMaxSize is the greatest size an unprivileged process may give a pipe.
func (m machine) pipeMaxSize() int {
	return max(os.Getpagesize(), m.numberOr("/proc/sys/fs/pipe-max-size", 1<<20))
}

// localPorts is the number of ports the kernel chooses from for outgoing
// connections.
func (m machine) localPorts() int {
	data, _ := m.readFile("/proc/sys/net/ipv4/ip_local_port_range")
	fields := strings.Fields(string(data))
	if len(fields) == 2 {
		first, err1 := strconv.Atoi(fields[0])
		last, err2 := strconv.Atoi(fields[1])
		if err1 == nil && err2 == nil && last >= first {
			return last - first + 1
		}
	}
	return 60999 - 32768 + 1
}

// userTasks is RLIMIT_NPROC; limited is false when there is none.
func (m machine) userTasks() (n int, limited bool) {
	soft, _, err := m.getrlimit(unix.RLIMIT_NPROC)
	return toInt(soft), err == nil && soft != unix.RLIM_INFINITY
}

// grantableFDs predicts what raiseFDs(wanted) would return.
func (m machine) grantableFDs(wanted int) int {
	soft, hard, err := m.getrlimit(unix.RLIMIT_NOFILE)
	if err != nil {
		return toInt(soft)
	}
	return max(toInt(soft), min(wanted, toInt(hard)))
}

// raiseFDs raises RLIMIT_NOFILE to wanted, or as near as the hard limit, which
// it tries to raise as well, allows. It never lowers it and returns the limit
// in force.
func (m machine) raiseFDs(wanted int) int {
	soft, hard, err := m.getrlimit(unix.RLIMIT_NOFILE)
	if err != nil {
		return toInt(soft)
	}
	if toInt(hard) < wanted {
		most := min(wanted, m.numberOr("/proc/sys/fs/nr_open", wanted))
		if most > toInt(hard) && m.setNofile(uint64(most), uint64(most)) == nil {
			return most
		}
	}
	target := max(toInt(soft), min(wanted, toInt(hard)))
	if m.setNofile(uint64(target), hard) != nil {
		return toInt(soft)
	}
	return target
}

func toInt(n uint64) int { return int(min(n, math.MaxInt32)) }

// taskRoom is what the control groups of the process, and those above it, allow
// (cgroups(7)).
type taskRoom struct {
	// most is the least pids.max, -1 when there is none.
	most int
	// free is how many tasks more the tightest of them permits, and limit the
	// pids.max of that one; -1 when there is none.
	free, limit int
}

// taskRoom reads pids.max and pids.current.
func (m machine) taskRoom() taskRoom {
	room := taskRoom{-1, -1, -1}
	groups, err := m.readFile("/proc/self/cgroup")
	if err != nil {
		return room
	}
	mounts, err := m.readFile("/proc/self/mountinfo")
	if err != nil {
		return room
	}
	for _, mount := range pidsMounts(string(mounts)) {
		if group, ok := pidsGroup(string(groups), mount.v2); ok {
			m.tighten(&room, mount, group)
		}
	}
	return room
}

// cgroupMount is a mounted hierarchy that may limit tasks: the part of it
// below root is visible at point.
type cgroupMount struct {
	root, point string
	v2          bool
}

// pidsMounts finds the hierarchies with the pids controller in a mountinfo
// file (proc_pid_mountinfo(5)).
func pidsMounts(mountinfo string) []cgroupMount {
	var found []cgroupMount
	for line := range strings.Lines(mountinfo) {
		front, back, ok := strings.Cut(line, " - ")
		place, kind := strings.Fields(front), strings.Fields(back)
		if !ok || len(place) < 5 || len(kind) < 3 {
			continue
		}
		options := "," + kind[2] + ","
		v1 := kind[0] == "cgroup" && strings.Contains(options, ",pids,")
		if v1 || kind[0] == "cgroup2" {
			found = append(found, cgroupMount{root: unescape(place[3]), point: unescape(place[4]), v2: !v1})
		}
	}
	return found
}

// unescape replaces the octal escapes of blanks and backslashes in mountinfo.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// pidsGroup finds the process's group in /proc/self/cgroup (cgroups(7)), whose
// lines are hierarchy:controllers:path.
func pidsGroup(cgroup string, v2 bool) (string, bool) {
	for line := range strings.Lines(cgroup) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			continue
		}
		is2 := parts[0] == "0" && parts[1] == ""
		has := strings.Contains(","+parts[1]+",", ",pids,")
		if v2 && is2 || !v2 && has {
			return parts[2], true
		}
	}
	return "", false
}

// tighten applies the limits of a group and of those above it.
func (m machine) tighten(room *taskRoom, mount cgroupMount, group string) {
	rel, err := filepath.Rel(mount.root, group)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		rel = "."
	}
	for dir := filepath.Join(mount.point, rel); ; dir = filepath.Dir(dir) {
		if n, ok := m.number(filepath.Join(dir, "pids.max")); ok {
			if room.most < 0 || n < room.most {
				room.most = n
			}
			used, ok := m.number(filepath.Join(dir, "pids.current"))
			if free := max(0, n-used); ok && (room.free < 0 || free < room.free) {
				room.free, room.limit = free, n
			}
		}
		if len(dir) <= len(mount.point) {
			return
		}
	}
}
