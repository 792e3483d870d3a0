package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"testing"
	"time"
)

// TestSlowClients has hundreds of clients that send their heads and bodies, or
// read their answers, as slowly as they can; others are served meanwhile.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	tool := need(t, "slowhttptest")
	h := startHTTPService(t)
	target := fmt.Sprintf("http://127.0.0.1:%d/bytes/300000", h.plain.port)
	done := make(chan error)
	modes := []string{"-H", "-B", "-X"}
	for _, mode := range modes {
		go func() {
			out, err := exec.Command(tool, mode, "-c", "200", "-r", "200", "-i", "1", "-l", "4", "-p", "3",
				"-d", fmt.Sprintf("127.0.0.1:%d", h.open), "-u", target).CombinedOutput()
			if err != nil {
				err = fmt.Errorf("slowhttptest %s: %w\n%s", mode, err, out)
			}
			done <- err
		}()
	}
	via := &url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", h.open)}
	transport := &http.Transport{Proxy: http.ProxyURL(via), DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 5 * time.Second}
	served := 0
	for running := len(modes); running > 0; {
		select {
		case err := <-done:
			running--
			if err != nil {
				t.Error(err)
			}
		case <-time.After(20 * time.Millisecond):
			resp, err := client.Get(h.plain.URL)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("after %d requests: %v", served, err)
			}
			resp.Body.Close()
			served++
		}
	}
	t.Logf("%d requests served meanwhile", served)
}
