package e2e

import (
	"embed"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

//go:embed testdata/clients
var clientScripts embed.FS

// httpService is a proxy for users with a password, and its origins.
type httpService struct {
	proxy, open int
	plain, tls  *origin
}

func startHTTPService(t *testing.T, lines ...string) *httpService {
	t.Helper()
	h := &httpService{proxy: port(t), open: port(t), plain: newOrigin(t, false), tls: newOrigin(t, true)}
	start(t, strings.Join(lines, "\n")+fmt.Sprintf("\ninternal 127.0.0.1\nnsrecord page.example 127.0.0.1\nusers alice:CL:wonder\nauth none\nproxy -p%d\nauth strong\nproxy -p%d\n", h.open, h.proxy))
	return h
}

// runScript runs a client's script with the addresses as its environment. It
// exits with 0 when all went well.
func (h *httpService) runScript(t *testing.T, interpreter, name string, env ...string) {
	t.Helper()
	env = append(env, fmt.Sprintf("PROXY=127.0.0.1:%d", h.proxy), fmt.Sprintf("OPEN=127.0.0.1:%d", h.open),
		fmt.Sprintf("PLAIN=127.0.0.1:%d", h.plain.port), fmt.Sprintf("TLS=127.0.0.1:%d", h.tls.port), "CERT="+h.tls.cert)
	runClient(t, name, env, interpreter)
}

// runClient runs a client's script with a command and variables of the
// environment.
func runClient(t *testing.T, name string, env []string, command ...string) {
	t.Helper()
	text, err := clientScripts.ReadFile("testdata/clients/" + name)
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(script, text, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(command[0], append(command[1:], script)...)
	cmd.Env = append(withoutProxies(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

// withoutProxies is the environment but for the proxies in it.
func withoutProxies() []string {
	var env []string
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); !strings.HasSuffix(strings.ToLower(name), "_proxy") {
			env = append(env, e)
		}
	}
	return env
}

// needPython returns a Python that has the module.
func needPython(t *testing.T, module string) string {
	t.Helper()
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(name, "-c", "import "+module).Run() == nil {
			return name
		}
	}
	skip(t, "no python3 with %s", module)
	return ""
}

// nodePath is where Debian keeps the modules of node.
const nodePath = "NODE_PATH=/usr/share/nodejs:/usr/lib/nodejs"

// needNode skips the test unless node finds a name in a module.
func needNode(t *testing.T, module, name string) string {
	t.Helper()
	node := need(t, "node")
	// node exits with 0 when a property is missing.
	probe := exec.Command(node, "-e", fmt.Sprintf("process.exit(require('%s').%s ? 0 : 1)", module, name))
	probe.Env = append(os.Environ(), nodePath)
	if probe.Run() != nil {
		skip(t, "node has no %s with %s", module, name)
	}
	return node
}

func TestPythonRequests(t *testing.T) {
	t.Parallel()
	python := needPython(t, "requests")
	startHTTPService(t).runScript(t, python, "requests_client.py")
}

func TestPythonAiohttp(t *testing.T) {
	t.Parallel()
	python := needPython(t, "aiohttp")
	startHTTPService(t).runScript(t, python, "aiohttp_client.py")
}

// TestNode uses undici's ProxyAgent (CONNECT for everything) and node's own
// http with absolute URIs.
func TestNode(t *testing.T) {
	t.Parallel()
	node := needNode(t, "undici", "ProxyAgent")
	startHTTPService(t).runScript(t, node, "node_client.js", nodePath)
}

// TestBrowser has a browser load a page with resources from an origin.
func TestBrowser(t *testing.T) {
	t.Parallel()
	chromium := need(t, "chromium")
	var hits atomic.Int64
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		if r.URL.Path != "/" {
			w.Header().Set("Content-Type", "text/javascript")
			fmt.Fprintf(w, "document.body.append('part%s ')", strings.Trim(r.URL.Path, "/"))
			return
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<!DOCTYPE html><title>t</title><body>")
		for i := range 12 {
			fmt.Fprintf(w, "<script src=/%d></script>", i)
		}
	}))
	t.Cleanup(site.Close)
	h := startHTTPService(t)
	page := fmt.Sprintf("http://page.example:%d/", site.Listener.Addr().(*net.TCPAddr).Port)
	cmd := exec.Command("timeout", "60", chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run",
		"--user-data-dir="+t.TempDir(), fmt.Sprintf("--proxy-server=127.0.0.1:%d", h.open), "--dump-dom", page)
	cmd.Env = append(withoutProxies(), "HOME="+t.TempDir())
	// Processes of the browser may keep the output open after its end.
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	for i := range 12 {
		if !strings.Contains(string(out), fmt.Sprintf("part%d ", i)) {
			t.Fatalf("part %d is missing, %d requests (%v):\n%s", i, hits.Load(), err, out)
		}
	}
}

// TestVarnishtest runs the cases of testdata/vtc, each a server and a client
// with the proxy between them.
func TestVarnishtest(t *testing.T) {
	t.Parallel()
	varnishtest := need(t, "varnishtest")
	// Servers of a case take one connection, which clients in a row share when
	// they come to the same worker.
	h := startHTTPService(t, "workers 1")
	cases, err := filepath.Glob("testdata/vtc/*.vtc")
	if err != nil || len(cases) == 0 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	for _, c := range cases {
		t.Run(strings.TrimSuffix(filepath.Base(c), ".vtc"), func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(varnishtest, "-t", "30", "-D", fmt.Sprintf("open=127.0.0.1:%d", h.open), "-D", fmt.Sprintf("proxy=127.0.0.1:%d", h.proxy), c)
			cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
