package lab

import (
	"fmt"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// CPUs says which CPUs each role may use.
type CPUs struct {
	Client, Proxy, Origin []int
}

// MaxCPU is the highest CPU number that can be named.
const MaxCPU = 1023

// DefaultCPUs gives the proxy a CPU of its own where there are two or more of
// the CPUs allowed to this process, and the origin one where there are three.
func DefaultCPUs() (CPUs, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return CPUs{}, fmt.Errorf("sched_getaffinity: %w", err)
	}
	var all []int
	for cpu := 0; cpu <= MaxCPU; cpu++ {
		if set.IsSet(cpu) {
			all = append(all, cpu)
		}
	}
	return chooseCPUs(all), nil
}

func chooseCPUs(all []int) CPUs {
	c := CPUs{Client: all[:1], Proxy: all[:1], Origin: all[:1]}
	if len(all) > 1 {
		c.Proxy = all[1:2]
	}
	if len(all) > 2 {
		c.Origin = all[2:3]
	}
	return c
}

// ParseCPUs reads "cli=0,prx=1,srv=0"; a role may have several CPUs, as in
// "prx=1-3" or "prx=1+3". Roles not named keep those of def.
func ParseCPUs(text string, def CPUs) (CPUs, error) {
	c := def
	for _, part := range strings.Split(text, ",") {
		role, list, ok := strings.Cut(part, "=")
		if !ok {
			return c, fmt.Errorf("cpus: %q is not ROLE=CPUS", part)
		}
		cpus, err := parseCPUList(list)
		if err != nil {
			return c, err
		}
		switch role {
		case "cli":
			c.Client = cpus
		case "prx":
			c.Proxy = cpus
		case "srv":
			c.Origin = cpus
		default:
			return c, fmt.Errorf("cpus: role %q is not one of cli, prx, srv", role)
		}
	}
	return c, nil
}

func parseCPUList(list string) ([]int, error) {
	var cpus []int
	for _, word := range strings.Split(list, "+") {
		from, to, ranged := strings.Cut(word, "-")
		if !ranged {
			to = from
		}
		a, err1 := strconv.Atoi(from)
		b, err2 := strconv.Atoi(to)
		if err1 != nil || err2 != nil || a < 0 || b < a || b > MaxCPU {
			return nil, fmt.Errorf("cpus: %q is not a CPU or a range of CPUs", word)
		}
		for cpu := a; cpu <= b; cpu++ {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// String returns what ParseCPUs reads.
func (c CPUs) String() string {
	return "cli=" + list(c.Client) + ",prx=" + list(c.Proxy) + ",srv=" + list(c.Origin)
}

func list(cpus []int) string {
	var words []string
	for _, cpu := range cpus {
		words = append(words, strconv.Itoa(cpu))
	}
	return strings.Join(words, "+")
}

// All returns the CPUs of all roles, each once.
func (c CPUs) All() []int {
	seen := make(map[int]bool)
	var all []int
	for _, set := range [][]int{c.Client, c.Proxy, c.Origin} {
		for _, cpu := range set {
			if !seen[cpu] {
				seen[cpu] = true
				all = append(all, cpu)
			}
		}
	}
	sort.Ints(all)
	return all
}

// mask returns cpus as the hexadecimal words of sysfs, "ffffffff,00000001".
func mask(cpus []int) string {
	words := make([]uint32, 1)
	for _, cpu := range cpus {
		for len(words) <= cpu/32 {
			words = append(words, 0)
		}
		words[cpu/32] |= 1 << (cpu % 32)
	}
	text := strconv.FormatUint(uint64(words[len(words)-1]), 16)
	for i := len(words) - 2; i >= 0; i-- {
		text += fmt.Sprintf(",%08x", words[i])
	}
	return text
}

func cpuSet(cpus []int) *unix.CPUSet {
	var set unix.CPUSet
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	return &set
}
