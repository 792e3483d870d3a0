package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"syscall"
	"testing"
)

// background runs a program until the test ends.
func background(t *testing.T, name string, args ...string) {
	t.Helper()
	var out output
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s printed:\n%s", name, out.String())
		}
	})
}

// startNginx runs nginx with a server section and what listens on a port there,
// and waits until it does. It may read dir.
func startNginx(t *testing.T, dir string, port int, server string) {
	t.Helper()
	nginx := need(t, "nginx")
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	conf := filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf(`
daemon off;
pid %[1]s/pid;
error_log stderr;
events {}
http {
	access_log off;
	sendfile on;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	server { %[2]s }
}
`, dir, server)
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	background(t, nginx, "-e", "stderr", "-c", conf)
	awaitPort(t, port)
}

// TestNginx serves a file from nginx over every route.
func TestNginx(t *testing.T) {
	t.Parallel()
	need(t, "curl")
	need(t, "nginx")
	dir, p := t.TempDir(), port(t)
	const size = 32<<20 + 5
	f, err := os.Create(filepath.Join(dir, "file"))
	if err != nil {
		t.Fatal(err)
	}
	if err := writePattern(f, size); err != nil {
		t.Fatal(err)
	}
	f.Close()
	startNginx(t, dir, p, fmt.Sprintf("listen 127.0.0.1:%d; root %s;", p, dir))
	for _, r := range routes(t, &origin{port: p}) {
		if r.tls {
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			download(t, size, r.url(&origin{port: p}, nil, "/file")...)
			if status, _ := curlStatus(r.url(&origin{port: p}, nil, "/missing")...); status != "404" {
				t.Errorf("a missing file is %s", status)
			}
		})
	}
}

// awaitPort waits until something listens on a port.
func awaitPort(t *testing.T, p int) {
	t.Helper()
	eventually(t, patience, func() string {
		if !listens(p) {
			return fmt.Sprintf("nothing listens on port %d", p)
		}
		return ""
	})
}

// TestSSH runs a command and copies data over ssh through tcppm and CONNECT.
func TestSSH(t *testing.T) {
	t.Parallel()
	ssh, sshd, keygen := need(t, "ssh"), need(t, "sshd"), need(t, "ssh-keygen")
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		// Its own directory, which a package whose service never started has
		// not made.
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			t.Fatal(err)
		}
	}
	dir, p, ppm := t.TempDir(), port(t), port(t)
	for _, key := range []string{"host", "client"} {
		if out, err := exec.Command(keygen, "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, key)).CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen: %v: %s", err, out)
		}
	}
	conf := filepath.Join(dir, "sshd_config")
	text := fmt.Sprintf(`
Port %d
ListenAddress 127.0.0.1
HostKey %[2]s/host
AuthorizedKeysFile %[2]s/client.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin yes
`, p, dir)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	background(t, sshd, "-D", "-e", "-f", conf)
	awaitPort(t, p)
	http, socks := port(t), port(t)
	start(t, fmt.Sprintf("auth none\ninternal 127.0.0.1\ntcppm %d 127.0.0.1 %d\nproxy -p%d\nsocks -p%d\n", ppm, p, http, socks))

	for name, route := range map[string][]string{
		"tcppm":   {"-p", fmt.Sprint(ppm)},
		"CONNECT": {"-p", fmt.Sprint(p), "-o", fmt.Sprintf("ProxyCommand=nc -X connect -x 127.0.0.1:%d %%h %%p", http)},
		"SOCKS 4": {"-p", fmt.Sprint(p), "-o", fmt.Sprintf("ProxyCommand=nc -X 4 -x 127.0.0.1:%d %%h %%p", socks)},
		"SOCKS 5": {"-p", fmt.Sprint(p), "-o", fmt.Sprintf("ProxyCommand=nc -X 5 -x 127.0.0.1:%d %%h %%p", socks)},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "tcppm" {
				need(t, "nc")
			}
			run := func(command string) ([]byte, error) {
				args := append([]string{"-F", "none", "-i", filepath.Join(dir, "client"),
					"-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no",
					"-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"}, route...)
				return exec.Command(ssh, append(args, me.Username+"@127.0.0.1", command)...).CombinedOutput()
			}
			if out, err := run("echo from the other side"); err != nil || string(out) != "from the other side\n" {
				t.Fatalf("%q, %v", out, err)
			}
			if out, err := run("head -c 20000000 /dev/zero | tr '\\0' x"); err != nil || len(out) != 20_000_000 {
				t.Fatalf("%d bytes, %v", len(out), err)
			}
		})
	}
}
