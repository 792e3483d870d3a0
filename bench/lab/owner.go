package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// prefix begins the name of everything the lab makes on the machine. After it
// come the maker's process id and the time it started, which together tell a
// running owner from one that is gone.
const prefix = "3pb"

var ownedName = regexp.MustCompile(`^` + prefix + `-(\d+)-(\d+)(-[a-z]+)?$`)

// owner is a process that makes things.
type owner struct {
	pid   int
	start string
}

func self() (owner, error) {
	start, err := startTime(os.Getpid())
	if err != nil {
		return owner{}, fmt.Errorf("read own start time: %w", err)
	}
	return owner{os.Getpid(), start}, nil
}

// name returns the name of a thing that o makes.
func (o owner) name(what string) string {
	n := fmt.Sprintf("%s-%d-%s", prefix, o.pid, o.start)
	if what != "" {
		n += "-" + what
	}
	return n
}

// parseOwner returns the maker of a thing; ok is false for names of others.
func parseOwner(name string) (owner, bool) {
	m := ownedName.FindStringSubmatch(name)
	if m == nil {
		return owner{}, false
	}
	pid, err := strconv.Atoi(m[1])
	return owner{pid, m[2]}, err == nil
}

// alive tells whether the owner still runs.
func (o owner) alive() bool {
	start, err := startTime(o.pid)
	return err == nil && start == o.start
}

// Alive tells whether the process pid runs; one that nobody has waited for does
// not.
func Alive(pid int) bool {
	_, err := startTime(pid)
	return err == nil
}

// startTime returns field 22 of proc_pid_stat(5): when the process started, in
// clock ticks since boot. A process that has ended is an error, even if nobody has
// waited for it.
func startTime(pid int) (string, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return "", err
	}
	_, rest, ok := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 20 {
		return "", fmt.Errorf("unexpected format of /proc/%d/stat", pid)
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return "", fmt.Errorf("process %d has ended", pid)
	}
	return fields[19], nil
}
