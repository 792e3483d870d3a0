package supervisor

import (
	"errors"
	"io/fs"
	"math"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"3proxyd/config"
)

// fakeMachine has files and limits of its own.
type fakeMachine struct {
	files      map[string]string
	soft, hard uint64
	nproc      uint64
	// mayRaise lets the hard limit be raised.
	mayRaise bool
}

func (f *fakeMachine) machine(euid int) machine {
	return machine{
		euid: euid,
		readFile: func(path string) ([]byte, error) {
			text, ok := f.files[path]
			if !ok {
				return nil, fs.ErrNotExist
			}
			return []byte(text), nil
		},
		getrlimit: func(resource int) (uint64, uint64, error) {
			if resource == unix.RLIMIT_NPROC {
				return f.nproc, f.nproc, nil
			}
			return f.soft, f.hard, nil
		},
		setNofile: func(soft, hard uint64) error {
			if hard > f.hard && !f.mayRaise {
				return unix.EPERM
			}
			f.soft, f.hard = soft, hard
			return nil
		},
	}
}

func newFakeMachine() *fakeMachine {
	return &fakeMachine{
		files: map[string]string{
			"/proc/sys/net/core/somaxconn":           "4096\n",
			"/proc/sys/fs/pipe-user-pages-soft":      "16384\n",
			"/proc/sys/fs/pipe-max-size":             "1048576\n",
			"/proc/sys/fs/nr_open":                   "1048576\n",
			"/proc/sys/net/ipv4/ip_local_port_range": "32768\t60999\n",
		},
		soft: 1024, hard: 524288, nproc: unix.RLIM_INFINITY,
	}
}

func services(maxconn ...int) *config.Config {
	cfg := &config.Config{}
	for _, n := range maxconn {
		cfg.Services = append(cfg.Services, config.Service{MaxConn: n})
	}
	return cfg
}

func TestMeasure(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*fakeMachine)
		euid    int
		cfg     *config.Config
		workers int

		granted, needed int
		maxConn         []int
		pipes, size     int
		warnings        []string
		fatal           string
	}{
		"explicit, enough": {
			cfg: services(1000), workers: 2, euid: 0,
			granted: 2*1000 + 2*256 + 1 + 64, needed: 2*1000 + 2*256 + 1 + 64,
			maxConn: []int{1000}, pipes: 256, size: 256 << 10,
		},
		"explicit, hard limit too low": {
			change: func(f *fakeMachine) { f.hard = 4096 },
			cfg:    services(5000), workers: 2, euid: 0,
			granted: 4096, needed: 10000 + 512 + 1 + 64,
			maxConn: []int{5000}, pipes: 256, size: 256 << 10,
			warnings: []string{"needs 10577 descriptors for 5000 connections, but only 4096 are granted, 6481 too few: set LimitNOFILE=10577"},
		},
		"explicit, hard limit raised": {
			change: func(f *fakeMachine) { f.hard, f.mayRaise = 4096, true },
			cfg:    services(5000), workers: 2, euid: 0,
			granted: 10577, needed: 10577,
			maxConn: []int{5000}, pipes: 256, size: 256 << 10,
		},
		"unset, plenty": {
			cfg: services(0, 0), workers: 4, euid: 0,
			granted: 2*25000 + 512 + 2 + 64, needed: 2*25000 + 512 + 2 + 64,
			maxConn: []int{100_000, 100_000}, pipes: 256, size: 256 << 10,
			warnings: []string{"services without maxconn may reach 100000 connections, but there are 28232 local ports"},
		},
		"unset, few": {
			change: func(f *fakeMachine) { f.soft, f.hard = 1024, 1024 },
			cfg:    services(0), workers: 2, euid: 0,
			// 128 pipes at most of 1024 descriptors.
			granted: 1024, needed: 2*351 + 256 + 1 + 64,
			maxConn: []int{702}, pipes: 128, size: 256 << 10,
		},
		"hopeless": {
			change: func(f *fakeMachine) { f.soft, f.hard = 64, 64 },
			cfg:    services(0), workers: 1, euid: 0,
			granted: 64, needed: 4*1 + 2 + 64,
			maxConn: []int{1}, pipes: 0, size: 256 << 10,
			fatal: "needs at least 67 descriptors, but only 64 are granted: set LimitNOFILE=67 in the unit, or `ulimit -n 67`",
		},
		"room for one": {
			change: func(f *fakeMachine) { f.soft, f.hard = 67, 67 },
			cfg:    services(0), workers: 1, euid: 0,
			granted: 67, needed: 4 + 2 + 64,
			maxConn: []int{1}, pipes: 0, size: 256 << 10,
			warnings: []string{"needs 70 descriptors for 1 connection, but only 67 are granted"},
		},
		"sockets of many workers": {
			change: func(f *fakeMachine) { f.soft, f.hard = 100, 100 },
			cfg:    services(0, 0), workers: 16, euid: 0,
			granted: 100, needed: 2*16 + 4*16 + 2 + 64,
			maxConn: []int{80, 80}, pipes: 12, size: 256 << 10,
			fatal: "needs at least 128 descriptors",
		},
		"a limit of its own beside one without": {
			change: func(f *fakeMachine) { f.soft, f.hard = 1000, 1000 },
			cfg:    services(0, 50), workers: 1, euid: 0,
			granted: 1000, needed: 1000,
			maxConn: []int{292, 50}, pipes: 125, size: 256 << 10,
		},
		"pipes of a user, few workers": {
			cfg: services(10), workers: 2, euid: 1000,
			granted: 1024, needed: 20 + 192 + 1 + 64,
			maxConn: []int{10}, pipes: 96, size: 256 << 10,
		},
		"pipes of a user, many workers": {
			cfg: services(10), workers: 8, euid: 1000,
			granted: 1024, needed: 20 + 48 + 1 + 64,
			maxConn: []int{10}, pipes: 24, size: 256 << 10,
		},
		"pipes of workers that drop root": {
			cfg: func() *config.Config {
				c := services(10)
				c.SetUID = &config.Identity{Name: "nobody", ID: 65534}
				return c
			}(), workers: 2, euid: 0,
			granted: 1024, needed: 20 + 192 + 1 + 64,
			maxConn: []int{10}, pipes: 96, size: 256 << 10,
		},
		"backlog, ports and tasks": {
			change: func(f *fakeMachine) {
				f.nproc = 20
				f.files["/proc/self/cgroup"] = "0::/system.slice/3proxyd.service\n"
				f.files["/proc/self/mountinfo"] = "30 23 0:27 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw\n"
				f.files["/sys/fs/cgroup/system.slice/3proxyd.service/pids.max"] = "max\n"
				f.files["/sys/fs/cgroup/system.slice/pids.max"] = "33\n"
			},
			cfg: func() *config.Config {
				c := services(30000)
				c.Services[0].Backlog = 10000
				return c
			}(), workers: 2, euid: 1000,
			granted: 60000 + 192 + 1 + 64, needed: 60000 + 192 + 1 + 64,
			maxConn: []int{30000}, pipes: 96, size: 256 << 10,
			warnings: []string{
				"may need 66 tasks, but pids.max of the control group is 33, 33 too few: set TasksMax=66",
				"may need 66 tasks, but the user may have 20 (RLIMIT_NPROC), 46 too few",
				"a backlog of 10000 is cut to 4096 by the kernel: set `sysctl net.core.somaxconn=10000`",
				"a maxconn of 30000 in all exceeds the 28232 local ports",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeMachine()
			if c.change != nil {
				c.change(f)
			}
			predicted := measure(f.machine(c.euid), c.cfg, c.workers, false)
			l := measure(f.machine(c.euid), c.cfg, c.workers, true)
			if l.Status.FDsGranted != c.granted || l.Status.FDsNeeded != c.needed {
				t.Errorf("%d descriptors granted, %d needed; want %d, %d", l.Status.FDsGranted, l.Status.FDsNeeded, c.granted, c.needed)
			}
			if int(f.soft) != c.granted {
				t.Errorf("the limit is %d", f.soft)
			}
			if !reflect.DeepEqual(l.MaxConn, c.maxConn) {
				t.Errorf("maxconn %v, want %v", l.MaxConn, c.maxConn)
			}
			if l.MaxPipes != c.pipes || l.PipeSize != c.size {
				t.Errorf("%d pipes of %d, want %d of %d", l.MaxPipes, l.PipeSize, c.pipes, c.size)
			}
			if !strings.Contains(l.Fatal, c.fatal) || (l.Fatal == "") != (c.fatal == "") {
				t.Errorf("fatal %q, want %q", l.Fatal, c.fatal)
			}
			if len(l.Warnings) != len(c.warnings) {
				t.Fatalf("warnings %q", l.Warnings)
			}
			for i, w := range c.warnings {
				if !strings.Contains(l.Warnings[i], w) {
					t.Errorf("warning %q, want %q", l.Warnings[i], w)
				}
			}
			if !f.mayRaise && !reflect.DeepEqual(predicted, l) {
				t.Errorf("predicted %+v, got %+v", predicted, l)
			}
		})
	}
}

func TestRaiseFDs(t *testing.T) {
	for name, c := range map[string]struct {
		soft, hard uint64
		mayRaise   bool
		nrOpen     string
		wanted     int
		want       int
	}{
		"enough already":      {4096, 4096, false, "", 1000, 4096},
		"up to the hard":      {1024, 4096, false, "", 9000, 4096},
		"as far as needed":    {1024, 9000, false, "", 5000, 5000},
		"beyond the hard":     {1024, 4096, true, "1048576", 9000, 9000},
		"bounded by nr_open":  {1024, 4096, true, "8000", 9000, 8000},
		"infinity is bounded": {unix.RLIM_INFINITY, unix.RLIM_INFINITY, false, "", 9000, math.MaxInt32},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakeMachine{soft: c.soft, hard: c.hard, mayRaise: c.mayRaise, files: map[string]string{}}
			if c.nrOpen != "" {
				f.files["/proc/sys/fs/nr_open"] = c.nrOpen
			}
			if got := f.machine(0).raiseFDs(c.wanted); got != c.want {
				t.Errorf("granted %d, want %d", got, c.want)
			}
		})
	}
	m := (&fakeMachine{}).machine(0)
	m.getrlimit = func(int) (uint64, uint64, error) { return 77, 0, errors.New("no") }
	if got := m.raiseFDs(1000); got != 77 {
		t.Errorf("granted %d without knowing the limit", got)
	}
}

func TestPidsMax(t *testing.T) {
	const (
		v1     = "36 23 0:33 / /sys/fs/cgroup/pids rw,relatime shared:9 - cgroup cgroup rw,pids\n"
		v2     = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
		nested = "41 31 0:38 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"
	)
	for name, c := range map[string]struct {
		groups, mounts string
		limits         map[string]string
		want           int
	}{
		"nothing":             {"", "", nil, -1},
		"v1":                  {"8:pids:/a/b\n0::/\n", v1 + v2, map[string]string{"/sys/fs/cgroup/pids/a/b/pids.max": "100\n"}, 100},
		"v1 with others":      {"8:cpu,pids:/\n", strings.Replace(v1, "rw,pids", "rw,cpu,pids", 1), map[string]string{"/sys/fs/cgroup/pids/pids.max": "9\n"}, 9},
		"v2, ancestor":        {"0::/a/b\n", v2, map[string]string{"/sys/fs/cgroup/unified/a/b/pids.max": "max\n", "/sys/fs/cgroup/unified/a/pids.max": "50\n"}, 50},
		"v2, least":           {"0::/a/b\n", v2, map[string]string{"/sys/fs/cgroup/unified/a/b/pids.max": "40\n", "/sys/fs/cgroup/unified/a/pids.max": "50\n"}, 40},
		"mounted from within": {"0::/docker/abc/x\n", nested, map[string]string{"/sys/fs/cgroup/x/pids.max": "30\n"}, 30},
		"outside of mount":    {"0::/../other\n", nested, map[string]string{"/sys/fs/cgroup/pids.max": "20\n"}, 20},
		"unlimited":           {"0::/\n", v2, map[string]string{"/sys/fs/cgroup/unified/pids.max": "max\n"}, -1},
		"garbage":             {"::\nx\n0::\n", "a - b\n - \n" + v2, nil, -1},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakeMachine{files: map[string]string{"/proc/self/cgroup": c.groups, "/proc/self/mountinfo": c.mounts}}
			for path, text := range c.limits {
				f.files[path] = text
			}
			if got := f.machine(0).taskRoom().most; got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
		})
	}
}

// TestTasksLeft has groups that are nearly full.
func TestTasksLeft(t *testing.T) {
	f := &fakeMachine{files: map[string]string{
		"/proc/self/cgroup":           "0::/a/b\n",
		"/proc/self/mountinfo":        "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
		"/sys/fs/cgroup/a/b/pids.max": "max\n", "/sys/fs/cgroup/a/b/pids.current": "27\n",
		"/sys/fs/cgroup/a/pids.max": "60\n", "/sys/fs/cgroup/a/pids.current": "30\n",
	}}
	d := &daemon{machine: f.machine(0), slots: []*slot{newSlot(0, 0), newSlot(1, 0)}}
	const want = "it needs 48 tasks beside those there are, but pids.max of the control group is 60 and permits 30 more: set TasksMax=78 in the unit"
	if err := d.checkTasks(); err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	f.files["/sys/fs/cgroup/a/pids.current"] = "100\n"
	if room := d.machine.taskRoom(); room != (taskRoom{60, 0, 60}) {
		t.Errorf("room %+v in a group that is too full", room)
	}
	f.files["/sys/fs/cgroup/a/pids.max"] = "78\n"
	f.files["/sys/fs/cgroup/a/pids.current"] = "30\n"
	if err := d.checkTasks(); err != nil {
		t.Error(err)
	}
}

func FuzzPidsMax(f *testing.F) {
	f.Add("8:pids:/a/b\n0::/\n", "36 23 0:33 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n")
	f.Add("0::/../x\n", "41 31 0:38 /docker/a\\040b /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
	f.Fuzz(func(t *testing.T, groups, mounts string) {
		m := (&fakeMachine{files: map[string]string{"/proc/self/cgroup": groups, "/proc/self/mountinfo": mounts}}).machine(0)
		if n := m.taskRoom(); n != (taskRoom{-1, -1, -1}) {
			t.Errorf("%+v without any limit", n)
		}
	})
}

func TestWorkerCPUs(t *testing.T) {
	var allowed unix.CPUSet
	for _, cpu := range []int{1, 3, 70} {
		allowed.Set(cpu)
	}
	for name, c := range map[string]struct {
		workers int
		cpus    []int
		want    []int
		fails   bool
	}{
		"auto":          {0, nil, []int{1, 3, 70}, false},
		"more than CPU": {5, nil, []int{1, 3, 70, 1, 3}, false},
		"listed":        {0, []int{70, 1}, []int{70, 1}, false},
		"not allowed":   {0, []int{2}, nil, true},
		"out of range":  {0, []int{5000}, nil, true},
		"too many":      {maxWorkers + 1, nil, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := workerCPUs(&config.Config{Workers: c.workers, CPUs: c.cpus}, &allowed)
			if !reflect.DeepEqual(got, c.want) || (err != nil) != c.fails {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

func TestBackOffDelay(t *testing.T) {
	want := []int{0, 0, 1, 2, 4, 8, 16, 32, 60, 60}
	for failures, w := range want {
		if got := backOffDelay(failures, 1, 60); int(got) != w {
			t.Errorf("%d failures: %d, want %d", failures, got, w)
		}
	}
	if got := backOffDelay(1_000_000, defaultTiming.unit, defaultTiming.cap); got != defaultTiming.cap {
		t.Errorf("a long crash loop: %v", got)
	}
}
