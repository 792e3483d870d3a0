package measure

import (
	"maps"
	"os"
	"testing"
	"time"
)

func TestParseCPUs(t *testing.T) {
	text := "cpu  1 2 3 4 5 6 7 8 0 0\ncpu0 1 2 3 40 5 6 7 8 0 0\ncpu12 0 0 1 2 0 0 0 0 0 0\nintr 5\n"
	got, err := parseCPUs([]byte(text))
	want := map[int]CPUTime{
		0:  {Idle: 450 * time.Millisecond, Steal: 80 * time.Millisecond},
		12: {Idle: 20 * time.Millisecond},
	}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("parseCPUs = %v, %v; want %v", got, err, want)
	}
	for _, bad := range []string{"", "cpux 1 2 3 4 5 6 7 8", "cpu0 a 2 3 4 5 6 7 8"} {
		if _, err := parseCPUs([]byte(bad)); err == nil {
			t.Errorf("parseCPUs(%q): no error", bad)
		}
	}
}

func TestParseTask(t *testing.T) {
	text := "7 (a) b) c) S 3 7 7 0 -1 2097152 1 1 1 1 10 20 30 40 20 0 1 0 55"
	got, err := parseTask(text)
	want := taskStat{ppid: 3, flags: kernelThread, self: 300 * time.Millisecond, children: 700 * time.Millisecond}
	if err != nil || got != want {
		t.Errorf("parseTask = %+v, %v; want %+v", got, err, want)
	}
	for _, bad := range []string{"", "7 (x", "7 (x) S 1 2", "7 (x) S a 7 7 0 -1 2 1 1 1 1 1 2 3 4"} {
		if _, err := parseTask(bad); err == nil {
			t.Errorf("parseTask(%q): no error", bad)
		}
	}
}

func TestForeign(t *testing.T) {
	const s = time.Second
	before := Tasks{
		1:  {self: 9 * s},
		10: {ppid: 1, self: s},      // a shell
		11: {ppid: 10, self: 5 * s}, // its child, gone later
		12: {ppid: 11, self: 2 * s}, // its grandchild, gone as well
		20: {ppid: 1, self: 50 * s}, // gone, and nobody waited for it
		30: {ppid: 1, self: s},      // ours
	}
	after := Tasks{
		1:  {self: 9 * s},
		10: {ppid: 1, self: 2 * s, children: 10 * s}, // 7 of it from before
		13: {ppid: 10, self: s},
		30: {ppid: 1, self: 40 * s},
		31: {ppid: 30, self: 40 * s},
	}
	if got := Foreign(before, after, map[int]bool{30: true}); got != 5*s {
		t.Errorf("Foreign = %v, want 5s", got)
	}
	loop := Tasks{5: {ppid: 6}, 6: {ppid: 5}}
	if got := Foreign(loop, Tasks{}, nil); got != 0 {
		t.Errorf("Foreign of a loop = %v", got)
	}
}

func TestParsePSS(t *testing.T) {
	got, err := parsePSS([]byte("00-ff ---p\nRss:     900 kB\nPss:                 123 kB\nPss_Dirty: 4 kB\n"))
	if err != nil || got != 123<<10 {
		t.Errorf("parsePSS = %d, %v", got, err)
	}
	if _, err := parsePSS([]byte("Rss: 1 kB\n")); err == nil {
		t.Error("parsePSS without Pss: no error")
	}
}

func TestParseTrace(t *testing.T) {
	text := `% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 60.00    0.001000           1      2000        10 recvfrom
 40.00    0.000500           1      1000           epoll_wait
------ ----------- ----------- --------- --------- ----------------
100.00    0.001500           0      3000        10 total
`
	got, err := parseTrace([]byte(text))
	if err != nil || !maps.Equal(got, map[string]int64{"recvfrom": 2000, "epoll_wait": 1000}) {
		t.Errorf("parseTrace = %v, %v", got, err)
	}
	if _, err := parseTrace([]byte("a b c d e f\n")); err == nil {
		t.Error("parseTrace of nonsense: no error")
	}
}

func TestProcessCPU(t *testing.T) {
	before, err := ProcessCPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Millisecond); time.Now().Before(end); {
	}
	after, err := ProcessCPU(os.Getpid())
	if err != nil || after <= before {
		t.Errorf("CPU time went from %v to %v, %v", before, after, err)
	}
}

func TestLiveReadings(t *testing.T) {
	pid := os.Getpid()
	if n, err := PSS([]int{pid}); err != nil || n < 1<<20 {
		t.Errorf("PSS = %d, %v", n, err)
	}
	if tasks, err := ReadTasks(); err != nil || tasks[pid].ppid != os.Getppid() {
		t.Errorf("ReadTasks = %v, %v", tasks, err)
	}
	if cpus, err := ReadCPUs(); err != nil || len(cpus) == 0 {
		t.Errorf("ReadCPUs = %v, %v", cpus, err)
	}
}

func FuzzParsers(f *testing.F) {
	f.Add([]byte("cpu0 1 2 3 40 5 6 7 8 0 0\n"))
	f.Add([]byte("7 (a) S 3 7 7 0 -1 2097152 1 1 1 1 10 20 30 40 20"))
	f.Add([]byte("Pss: 12 kB\n 60.00 0.001 1 2000 10 recvfrom\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		_, _ = parseCPUs(text)
		_, _ = parseTask(string(text))
		_, _ = parsePSS(text)
		if calls, err := parseTrace(text); err == nil {
			for name, n := range calls {
				if n < 0 {
					t.Errorf("%s: %d calls", name, n)
				}
			}
		}
	})
}
