package worker

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// What a server says first reaches its client at once through every service, with
// hundreds of tunnels that begin together (R13), and after a silence that is longer
// than a handshake or an exchange may last (R02).
func TestServersThatSpeakFirst(t *testing.T) {
	port := servePort(t, "0", "127.0.0.1")
	o := startOrigin(t, func(c *net.TCPConn, r *bufio.Reader, _ string, _ int) bool {
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n127.0.0.1\n")
		_, _ = io.Copy(c, r)
		return false
	})
	p := startProxy(t, "internal 127.0.0.1\ntimeouts 1 1 1 1 1 30 1 1 5 1 1\nproxy -pPORT\nsocks -pPORT\ntcppm PORT 127.0.0.1 "+port+"\n")
	var wg sync.WaitGroup
	for i := range 400 {
		wg.Go(func() {
			c := p.client(i % 4 % 3)
			defer c.Close()
			switch i % 4 {
			case 0:
				c.send("CONNECT 127.0.0.1:%s HTTP/1.1\r\nHost: x\r\n\r\n", port)
				c.want("CONNECT", 200, "")
			case 1:
				c.send("\x05\x01\x00" + request5(1, "127.0.0.1", portOf(t, "1.1.1.1:"+port)))
				c.wantBytes("\x05\x00")
				if reply := c.reply5(); reply != 0 {
					t.Errorf("reply %d", reply)
					return
				}
			case 3:
				c.send("GET http://%s/ HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", o.addr)
				if head, err := readHead(c.r); err != nil {
					t.Errorf("%q, %v", head, err)
				}
			}
			c.wantBytes("127.0.0.1\n")
			if i/4%10 != 0 {
				return
			}
			time.Sleep(3500 * time.Millisecond)
			c.send(fmt.Sprint("number ", i))
			c.wantBytes(fmt.Sprint("number ", i))
		})
	}
	wg.Wait()
	for i := range p.addrs {
		p.waitOpen(i, 0)
	}
}
