package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"3proxyd/bench/lab"
	"3proxyd/bench/peer"
	"3proxyd/bench/scenario"
)

// envoyConfig is the part of envoy's configuration that says who listens where
// and leads where (envoy.config.bootstrap.v3).
type envoyConfig struct {
	Static struct {
		Listeners []struct {
			Name    string
			Address envoyAddress
			Chains  []struct {
				Filters []struct {
					Name   string
					Config map[string]any `json:"typed_config"`
				}
			} `json:"filter_chains"`
		}
		Clusters []struct {
			Name       string
			Assignment struct {
				Endpoints []struct {
					Hosts []struct {
						Endpoint struct{ Address envoyAddress }
					} `json:"lb_endpoints"`
				}
			} `json:"load_assignment"`
		}
	} `json:"static_resources"`
}

type envoyAddress struct {
	Socket struct {
		Address string
		Port    uint16 `json:"port_value"`
	} `json:"socket_address"`
}

func (a envoyAddress) String() string {
	return net.JoinHostPort(a.Socket.Address, strconv.Itoa(int(a.Socket.Port)))
}

// fakeEnvoy stands in for envoy, which no registry of packages has: it takes the
// same arguments and configuration, and relays by the standard library.
func fakeEnvoy(args []string) error {
	if slices.Equal(args, []string{"--version"}) {
		fmt.Println("envoy  version: fake/1.0")
		return nil
	}
	if len(args) != 7 || args[0] != "-c" || !slices.Equal(args[2:], []string{"--concurrency", "1", "--log-level", "off", "--disable-hot-restart"}) {
		return fmt.Errorf("unexpected arguments %q", args)
	}
	text, err := os.ReadFile(args[1])
	if err != nil {
		return err
	}
	var cfg envoyConfig
	if err := json.Unmarshal(text, &cfg); err != nil {
		return err
	}
	origin := cfg.Static.Clusters[0].Assignment.Endpoints[0].Hosts[0].Endpoint.Address.String()
	ended := make(chan error)
	for _, l := range cfg.Static.Listeners {
		ln, err := net.Listen("tcp", l.Address.String())
		if err != nil {
			return err
		}
		filter := l.Chains[0].Filters[0]
		switch filter.Name {
		case "envoy.filters.network.tcp_proxy":
			if filter.Config["cluster"] != cfg.Static.Clusters[0].Name {
				return fmt.Errorf("the relay leads to %q", filter.Config["cluster"])
			}
			go func() { ended <- fakeRelay(ln, origin) }()
		case "envoy.filters.network.http_connection_manager":
			go func() { ended <- fakeHTTP(ln, origin) }()
		default:
			return fmt.Errorf("unexpected filter %q", filter.Name)
		}
	}
	return <-ended
}

func fakeRelay(ln net.Listener, origin string) error {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return err
		}
		go func() {
			if server, err := net.Dial("tcp", origin); err == nil {
				both(conn, server)
			}
		}()
	}
}

// both copies both ways until each has ended.
func both(a, b net.Conn) {
	done := make(chan struct{})
	go func() {
		_, _ = io.Copy(a, b)
		_ = a.(*net.TCPConn).CloseWrite()
		close(done)
	}()
	_, _ = io.Copy(b, a)
	_ = b.(*net.TCPConn).CloseWrite()
	<-done
	_, _ = a.Close(), b.Close()
}

func fakeHTTP(ln net.Listener, origin string) error {
	plain := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", origin }}
	return http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			plain.ServeHTTP(w, r)
			return
		}
		server, err := net.Dial("tcp", origin)
		if err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusOK)
		client, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			_ = server.Close()
			return
		}
		both(client, server)
	}))
}

// TestEnvoy has `run` measure envoy's stand-in, so that the way there works for
// those who have the real one.
func TestEnvoy(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	binary, out := filepath.Join(dir, envoyName), filepath.Join(dir, "runs.csv")
	if err := os.Symlink(self, binary); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	err = runCommand(ctx, []string{
		"--proxy", envoyName, "--bin", envoyName + "=" + binary, "--scenario", "relay-ka-1k-4,connect-ka-1k-4,http-ka-1k-4,relay-stream1",
		"--reps", "1", "--attempts", "1", "--secs", "0.2", "--warm", "100ms", "--quiet", "0s", "--verify", "--no-strace", "--no-plots", "--out", out,
	})
	if errors.Is(err, context.DeadlineExceeded) {
		t.Skip("another run has the lab: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	rows, err := readCSV(out)
	if err != nil || len(rows) != 4 {
		t.Fatalf("%d rows, %v; want 4", len(rows), err)
	}
	for _, r := range rows {
		if r.Failed != "" || r.Errors > 0 || r.Bytes == 0 || r.Version != "envoy  version: fake/1.0" {
			t.Errorf("%s: %+v", r.Scenario, r)
		}
	}
}

// envoyName is the name of the peer and of its binary.
const envoyName = "envoy"

func TestEnvoyConfiguration(t *testing.T) {
	p, err := peer.Find(envoyName)
	if err != nil {
		t.Fatal(err)
	}
	e := peer.Env{
		Dir: t.TempDir(), Listen: lab.ProxyAddr, Out: lab.ProxyOutAddr, Origin: lab.OriginAddrPort, OriginTLS: lab.OriginTLSAddrPort, Files: 1000,
	}
	args, err := p.Configure(e)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(args[1])
	if err != nil {
		t.Fatal(err)
	}
	var cfg envoyConfig
	if err := json.Unmarshal(text, &cfg); err != nil {
		t.Fatal(err)
	}
	want := map[string]scenario.Mode{"relay": scenario.Relay, "http": scenario.HTTP}
	for _, l := range cfg.Static.Listeners {
		if at := netip.AddrPortFrom(lab.ProxyAddr, peer.Port(want[l.Name])).String(); l.Address.String() != at {
			t.Errorf("listener %s is at %s, want %s", l.Name, l.Address, at)
		}
		delete(want, l.Name)
	}
	if len(want) > 0 {
		t.Errorf("no listener for %v", want)
	}
	if got := cfg.Static.Clusters[0].Assignment.Endpoints[0].Hosts[0].Endpoint.Address.String(); got != lab.OriginAddrPort.String() {
		t.Errorf("the cluster leads to %s", got)
	}
}
