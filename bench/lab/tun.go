package lab

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// tunQueue is how many packets a TUN device holds for its reader.
const tunQueue = 10000

// offloadChecksum is TUN_F_CSUM of the kernel's if_tun.h: checksums are left out,
// as on a veth pair.
const offloadChecksum = 1

// Tuns replaces the veth pair between clients and proxy by two TUN devices, one
// in each namespace. What goes into one has to be carried to the other by whoever
// reads the files, which give packets with a virtio_net header of 10 bytes (the
// kernel's documentation, networking/tuntap). The devices are gone when the files
// are closed.
func (l *Lab) Tuns() (client, proxy *os.File, err error) {
	k := l.clientLink()
	if err := ip("-n", l.Proxy.ns, "link", "del", k.toDev); err != nil {
		return nil, nil, err
	}
	if client, err = openTun(k.from, k.fromDev); err != nil {
		return nil, nil, err
	}
	if proxy, err = openTun(k.to, k.toDev); err == nil {
		if err = k.setUp(); err == nil {
			err = l.routeClient()
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, client.Close(), closeTun(proxy))
	}
	return client, proxy, nil
}

func closeTun(f *os.File) error {
	if f == nil {
		return nil
	}
	return f.Close()
}

// openTun makes a TUN device in the role's namespace.
func openTun(r *Role, dev string) (file *os.File, err error) {
	err = r.Do(func() error {
		file, err = newTun(dev)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("make TUN device %s: %w", dev, err)
	}
	// Every packet is one of its own here: none may be lost before the wire.
	if err := ip("-n", r.ns, "link", "set", dev, "txqueuelen", strconv.Itoa(tunQueue)); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func newTun(dev string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
		return nil, fmt.Errorf("/dev/net/tun (CONFIG_TUN): %w", ErrKernel)
	}
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	file := os.NewFile(uintptr(fd), dev)
	req, err := unix.NewIfreq(dev)
	if err == nil {
		req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err == nil {
		err = unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, offloadChecksum)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
