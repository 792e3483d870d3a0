package e2e

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// proxied asks an HTTP proxy for a URL and returns the status.
func proxied(t *testing.T, proxy int, url string) int {
	t.Helper()
	c := dial(t, proxy)
	defer c.Close()
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", url)
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	return answer.StatusCode
}

// TestFullDisk fills the file system of the log: requests are served, the lost
// lines counted, and it is said once.
func TestFullDisk(t *testing.T) {
	needRoot(t)
	if !inNamespace(t, func() string { return "a file system cannot be mounted" }) {
		return
	}
	o, proxy := newOrigin(t, false), port(t)
	d := newDaemon(t, "")
	dir := filepath.Join(d.dir, "logs")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		skip(t, "mount: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	d.write(fmt.Sprintf("workers 1\nlog %s/log\nauth none\ninternal 127.0.0.1\nproxy -p%d\n", dir, proxy))
	d.launch()
	d.await()
	url := o.URL + "/" + strings.Repeat("x", 4000)
	for range 60 {
		if code := proxied(t, proxy, url); code != 200 {
			t.Fatalf("status %d", code)
		}
	}
	eventually(t, patience, func() string {
		if d.service("proxy")["log_dropped"] == 0 {
			return "no line was counted as lost"
		}
		return ""
	})
	for range 10 {
		if code := proxied(t, proxy, url); code != 200 {
			t.Fatalf("status %d", code)
		}
	}
	if n := strings.Count(d.out.String(), "no space left on device"); n != 1 {
		t.Errorf("the full disk was reported %d times", n)
	}
	if err := os.Truncate(dir+"/log", 0); err != nil {
		t.Fatal(err)
	}
	proxied(t, proxy, o.URL+"/again")
	eventually(t, patience, func() string {
		data, _ := os.ReadFile(dir + "/log")
		if !strings.Contains(string(data), "/again") || !strings.Contains(d.out.String(), "access log works again") {
			return "the log does not go on"
		}
		return ""
	})
}

// TestLogDirectoryGone removes the directory of the log: requests are served, a
// reload is refused at the log's place, and works when the directory is back.
func TestLogDirectoryGone(t *testing.T) {
	t.Parallel()
	o, proxy := newOrigin(t, false), port(t)
	d := newDaemon(t, "")
	dir := filepath.Join(d.dir, "logs")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	d.write(fmt.Sprintf("workers 2\nlog %s/log\nauth none\ninternal 127.0.0.1\nproxy -p%d\n", dir, proxy))
	d.launch()
	d.await()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if code := proxied(t, proxy, o.URL+"/x"); code != 200 {
			t.Fatalf("status %d", code)
		}
	}
	if _, stderr, code := d.ctl("reload"); code != 1 || !strings.Contains(stderr, d.config+":3:5: error: log: ") {
		t.Errorf("reload: %d %s", code, stderr)
	}
	// A worker that dies meanwhile gets the log of the supervisor.
	pid := d.worker(0).PID
	_ = syscall.Kill(pid, syscall.SIGKILL)
	d.awaitWorker(0, pid)
	for range 10 {
		if code := proxied(t, proxy, o.URL+"/x"); code != 200 {
			t.Fatalf("status %d", code)
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := d.ctl("reload"); code != 0 {
		t.Fatalf("reload: %s", stderr)
	}
	proxied(t, proxy, o.URL+"/again")
	eventually(t, patience, func() string {
		if data, _ := os.ReadFile(dir + "/log"); !strings.Contains(string(data), "/again") {
			return "the log does not go on"
		}
		return ""
	})
}

// TestNameServerGone names a name server nobody answers at: requests with
// addresses are served, those with names fail, are counted, and it is said once.
func TestNameServerGone(t *testing.T) {
	t.Parallel()
	o, proxy := newOrigin(t, false), port(t)
	d := start(t, fmt.Sprintf("workers 1\nnserver 127.0.0.1:%d\ntimeouts 1 5 30 60 180 1800 1\nauth none\ninternal 127.0.0.1\nproxy -p%d\n", port(t), proxy))
	for i := range 5 {
		if code := proxied(t, proxy, fmt.Sprintf("http://host%d.test/", i)); code != 502 {
			t.Errorf("status %d", code)
		}
		if code := proxied(t, proxy, o.URL+"/x"); code != 200 {
			t.Errorf("status %d", code)
		}
	}
	if n := d.service("proxy")["name_failed"]; n != 5 {
		t.Errorf("%d failures were counted", n)
	}
	if n := strings.Count(d.out.String(), "name servers do not answer"); n != 1 {
		t.Errorf("it was said %d times:\n%s", n, d.out.String())
	}
}

// TestNoMemory has the kernel refuse sockets to a worker for a while.
func TestNoMemory(t *testing.T) {
	t.Parallel()
	strace := need(t, "strace")
	o, proxy := newOrigin(t, false), port(t)
	// What io_uring does cannot be made to fail.
	d := start(t, fmt.Sprintf("engine epoll\nworkers 1\nauth none\ninternal 127.0.0.1\nproxy -p%d\n", proxy))
	pid := d.worker(0).PID
	for _, fault := range []string{"socket:error=ENOBUFS", "socket:error=ENFILE", "connect:error=ENOMEM", "accept4:error=ENOMEM:when=1..20"} {
		call, _, _ := strings.Cut(fault, ":")
		var out output
		cmd := exec.Command(strace, "-f", "-e", "trace="+call, "-e", "inject="+fault, "-o", "/dev/null", "-p", strconv.Itoa(pid))
		cmd.Stderr = &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			_ = cmd.Wait()
			close(done)
		}()
		eventually(t, patience, func() string {
			select {
			case <-done:
				skip(t, "strace: %s", strings.TrimSpace(out.String()))
			default:
			}
			if !strings.Contains(out.String(), "attached") {
				return "strace has not attached"
			}
			return ""
		})
		o.CloseClientConnections() // the idle ones the proxy keeps
		before := d.service("proxy")["no_resources"]
		want := 503
		if call == "accept4" {
			want = 200 // accepting pauses and goes on
		}
		for range 3 {
			if code := proxied(t, proxy, o.URL+"/x"); code != want {
				t.Errorf("%s: status %d instead of %d", fault, code, want)
			}
		}
		if n := d.service("proxy")["no_resources"] - before; call != "accept4" && n != 3 {
			t.Errorf("%s: %d failures were counted", fault, n)
		}
		_ = cmd.Process.Signal(syscall.SIGINT)
		<-done
		if code := proxied(t, proxy, o.URL+"/x"); code != 200 {
			t.Errorf("after %s: status %d", fault, code)
		}
	}
	if w := d.worker(0); w.PID != pid {
		t.Errorf("the worker was replaced: %+v", w)
	}
	if n := strings.Count(d.out.String(), "requests fail for want of descriptors or memory"); n != 1 {
		t.Errorf("it was said %d times:\n%s", n, d.out.String())
	}
}
