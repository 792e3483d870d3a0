package worker

import (
	"sync"
	"testing"
)

// Connections that fail, thousands of them, leave no descriptor behind (golang/go
// #27630), whatever they fail at.
func TestFailedConnects(t *testing.T) {
	p := startProxy(t, "internal 127.0.0.1\nnsrecord closed.test 127.0.0.9\nnsrecord closed.test ::1\nnsrecord denied.test 127.0.0.66\n"+
		"auth iponly\ndeny * * 127.0.0.66\nallow *\nproxy -pPORT\nsocks -pPORT\nsocks -pPORT -e192.0.2.9\n")
	hosts := []string{"127.0.0.9", "closed.test", "denied.test", "127.0.0.66", "0.0.0.0"}
	var wg sync.WaitGroup
	round := func(n int) {
		for worker := range 4 {
			wg.Go(func() {
				for i := range n {
					c := p.client((worker + i) % 3)
					host := hosts[i%len(hosts)]
					if (worker+i)%3 == 0 {
						c.send("CONNECT %s:1 HTTP/1.1\r\nHost: x\r\n\r\n", host)
						if resp, _ := c.answer("CONNECT"); resp.StatusCode < 400 {
							t.Errorf("CONNECT %s: %d", host, resp.StatusCode)
						}
					} else if reply, _ := openTo(t, c, host, 1); reply == 0 {
						t.Errorf("SOCKS %s", host)
					}
					c.Close()
				}
			})
		}
		wg.Wait()
		for i := range p.addrs {
			p.waitOpen(i, 0)
		}
	}
	round(10)
	before := len(openFiles())
	round(750)
	if after := openFiles(); len(after) > before+5 {
		t.Errorf("%d descriptors before, %d after: %q", before, len(after), after)
	}
}
