// Package freeport gives tests ports of 127.0.0.1 that stay free until they use
// them: calls in a row return different ones, other test processes others, and the
// kernel does not choose them for connections.
package freeport

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
)

// The ports lie below the least that the kernel chooses by default
// (net.ipv4.ip_local_port_range). A process has a block of them, and holds its
// first port, so that others leave the block alone.
const (
	firstPort = 10240
	lastPort  = 32240
	blockSize = 500
	blocks    = (lastPort - firstPort) / blockSize
)

var (
	mu sync.Mutex
	// guard holds the block, which begins at start; next counts its ports.
	guard       net.Listener
	start, next int
)

// Take returns a port that is free for TCP and UDP. After a block of them has been
// given away those come again that are free.
func Take() (int, error) {
	mu.Lock()
	defer mu.Unlock()
	if guard == nil {
		if err := claimBlock(); err != nil {
			return 0, err
		}
	}
	for range blockSize {
		next++
		port := start + 1 + next%(blockSize-1)
		if isFree(port) {
			return port, nil
		}
	}
	return 0, errors.New("no port is free")
}

// claimBlock takes the next block that no other process has.
func claimBlock() error {
	offset := os.Getpid()
	for i := range blocks {
		first := firstPort + (offset+i)%blocks*blockSize
		l, err := net.Listen("tcp4", address(first))
		if err == nil {
			guard, start = l, first
			return nil
		}
	}
	return errors.New("no block of ports is free")
}

func address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

func isFree(port int) bool {
	l, err := net.Listen("tcp4", address(port))
	if err != nil {
		return false
	}
	defer l.Close()
	c, err := net.ListenPacket("udp4", address(port))
	if err != nil {
		return false
	}
	return c.Close() == nil
}
