package e2e

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
)

const noIPv6 = "/proc/sys/net/ipv6/conf/lo/disable_ipv6"

// TestLateAddresses has addresses appear after the start: one to listen on, one to
// connect from, and all of IPv6. Until then only what needs them fails.
func TestLateAddresses(t *testing.T) {
	need(t, "curl")
	need(t, "ip")
	if !inNamespace(t, func() string { return "the machine's addresses are not to be changed" }) {
		return
	}
	if err := os.WriteFile(noIPv6, []byte("1"), 0); err != nil {
		skip(t, "%v", err)
	}
	start(t, `
workers 2
internal 127.0.0.1
nsrecord both.test 127.0.0.1
nsrecord both.test ::1
nsrecord six.test ::1
auth none
proxy -p3128
proxy -p3129 -e192.0.2.88
proxy -i192.0.2.88 -p3130 -olIP_FREEBIND
proxy -p3131 -64
`)
	o := newOrigin(t, false)
	// Of both.test only the IPv4 address has a server.
	both := fmt.Sprintf("http://both.test:%d/", o.port)
	six := "http://six.test:3132/"
	status := func(proxy, url string) string {
		out, _ := exec.Command("curl", "-sq", "--noproxy", "", "--max-time", "20", "-o", os.DevNull, "-w", "%{http_code}", "-x", "http://"+proxy, url).Output()
		return string(out)
	}
	for _, step := range []struct{ when, late, plain, six, listening string }{
		{"before", "503", "200", "502", "000"},
		{"after", "200", "200", "200", "200"},
	} {
		if step.when == "after" {
			if err := os.WriteFile(noIPv6, []byte("0"), 0); err != nil {
				t.Fatal(err)
			}
			for _, args := range []string{"addr add 192.0.2.88/32 dev lo", "-6 addr replace ::1/128 dev lo"} {
				if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
					t.Fatalf("ip %s: %v: %s", args, err, out)
				}
			}
			l, err := net.Listen("tcp", "[::1]:3132")
			if err != nil {
				t.Fatal(err)
			}
			srv := &http.Server{Handler: http.HandlerFunc(serve)}
			t.Cleanup(func() { srv.Close() })
			go func() { _ = srv.Serve(l) }()
		}
		for _, test := range []struct{ proxy, url, want string }{
			{"127.0.0.1:3128", o.URL, step.plain},
			{"127.0.0.1:3128", both, step.plain},
			{"127.0.0.1:3131", both, step.plain},
			{"127.0.0.1:3129", o.URL, step.late},
			{"192.0.2.88:3130", o.URL, step.listening},
			{"127.0.0.1:3128", six, step.six},
			{"127.0.0.1:3131", six, step.six},
		} {
			if got := status(test.proxy, test.url); got != test.want {
				t.Errorf("%s: %s through %s: %s, want %s", step.when, test.url, test.proxy, got, test.want)
			}
		}
	}
}

// TestNoIPv6 has a host without IPv6: an address to listen on that is missing stops
// the start with its reason, instead of being left out.
func TestNoIPv6(t *testing.T) {
	if !inNamespace(t, func() string { return "the machine's addresses are not to be changed" }) {
		return
	}
	if err := os.WriteFile(noIPv6, []byte("1"), 0); err != nil {
		skip(t, "%v", err)
	}
	d := newDaemon(t, "workers 1\nauth none\nproxy -i127.0.0.1 -p3128\nproxy -i::1 -p3129\n")
	d.launch()
	if !d.waitExit(patience) {
		t.Fatal("the daemon goes on")
	}
	if out := d.out.String(); !strings.Contains(out, "[::1]:3129 is not an address of this host") && !strings.Contains(out, "::1 is not an address of this host") {
		t.Errorf("it says %q", out)
	}
}
