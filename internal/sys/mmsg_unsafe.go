package sys

import (
	"fmt"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// MaxDatagram is the size in bytes of a buffer that holds any UDP datagram
// (RFC 768: the length field has 16 bits).
const MaxDatagram = 64 << 10

// datagramStride is the distance in bytes of two receive buffers. That it is no
// power of two keeps their beginnings, which is all that small datagrams use,
// out of each other's places in the caches.
const datagramStride = MaxDatagram + 192

// mmsghdr is struct mmsghdr of recvmmsg(2).
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
	_   uint32
}

// control has room for the control messages that are used here, cmsg(3).
type control [8]uint64

// RecvBatch is the buffers of recvmmsg(2). Their memory is outside the Go heap;
// pages that no datagram reaches cost nothing.
type RecvBatch struct {
	msgs     []mmsghdr
	iovs     []unix.Iovec
	names    []unix.RawSockaddrInet6
	controls []control
	mem      []byte
}

// NewRecvBatch allocates buffers for n datagrams of up to MaxDatagram bytes.
func NewRecvBatch(n int) (*RecvBatch, error) {
	mem, err := unix.Mmap(-1, 0, n*datagramStride, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("mmap of receive buffers: %w", err)
	}
	b := &RecvBatch{
		msgs:     make([]mmsghdr, n),
		iovs:     make([]unix.Iovec, n),
		names:    make([]unix.RawSockaddrInet6, n),
		controls: make([]control, n),
		mem:      mem,
	}
	for i := range n {
		b.iovs[i] = unix.Iovec{Base: &mem[i*datagramStride], Len: MaxDatagram}
		b.msgs[i].hdr = unix.Msghdr{
			Name:    (*byte)(unsafe.Pointer(&b.names[i])),
			Iov:     &b.iovs[i],
			Iovlen:  1,
			Control: (*byte)(unsafe.Pointer(&b.controls[i])),
		}
		b.rearm(i)
	}
	return b, nil
}

// Free gives the buffers back.
func (b *RecvBatch) Free() {
	_ = unix.Munmap(b.mem)
	*b = RecvBatch{}
}

// rearm sets what the kernel has overwritten.
func (b *RecvBatch) rearm(i int) {
	b.msgs[i].hdr.Namelen = uint32(unsafe.Sizeof(b.names[i]))
	b.msgs[i].hdr.Controllen = uint64(unsafe.Sizeof(b.controls[i]))
}

// Len returns how many datagrams one Recv can bring.
func (b *RecvBatch) Len() int { return len(b.msgs) }

// Recv takes the datagrams that wait in a socket, recvmmsg(2). What it brings
// is valid until the next Recv.
func (b *RecvBatch) Recv(fd int32) (n int, errno unix.Errno) {
	r, _, e := syscall.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b.msgs))), uintptr(len(b.msgs)), unix.MSG_DONTWAIT, 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(r), 0
}

// Take returns the payload of datagram i and readies its buffer for the next
// Recv; Source, Local and Truncated must have been asked before.
func (b *RecvBatch) Take(i int) []byte {
	b.rearm(i)
	off := i * datagramStride
	return b.mem[off : off+int(b.msgs[i].n) : off+MaxDatagram]
}

// Truncated reports whether datagram i was larger than its buffer.
func (b *RecvBatch) Truncated(i int) bool { return b.msgs[i].hdr.Flags&unix.MSG_TRUNC != 0 }

// Source returns where datagram i came from, v4-mapped addresses as IPv4, and
// the index of the interface of a link-local address; the zero AddrPort when
// the socket gives no IP address.
func (b *RecvBatch) Source(i int) (peer netip.AddrPort, scope uint32) {
	name := &b.names[i]
	switch {
	case b.msgs[i].hdr.Namelen < unix.SizeofSockaddrInet4:
	case name.Family == unix.AF_INET:
		in := (*unix.RawSockaddrInet4)(unsafe.Pointer(name))
		return netip.AddrPortFrom(netip.AddrFrom4(in.Addr), ntohs(&in.Port)), 0
	case name.Family == unix.AF_INET6:
		return netip.AddrPortFrom(netip.AddrFrom16(name.Addr).Unmap(), ntohs(&name.Port)), name.Scope_id
	}
	return netip.AddrPort{}, 0
}

// Local returns the address that datagram i was sent to, of a socket with
// IP_PKTINFO (ip(7)) or IPV6_RECVPKTINFO (ipv6(7)); otherwise the zero Addr.
func (b *RecvBatch) Local(i int) netip.Addr {
	left := min(uintptr(b.msgs[i].hdr.Controllen), unsafe.Sizeof(control{}))
	buf := (*[unsafe.Sizeof(control{})]byte)(unsafe.Pointer(&b.controls[i]))[:left]
	for len(buf) >= unix.SizeofCmsghdr {
		h := (*unix.Cmsghdr)(unsafe.Pointer(unsafe.SliceData(buf)))
		if h.Len < unix.SizeofCmsghdr || h.Len > uint64(len(buf)) {
			break
		}
		data := buf[unix.SizeofCmsghdr:h.Len]
		switch {
		case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
			return netip.AddrFrom4((*unix.Inet4Pktinfo)(unsafe.Pointer(unsafe.SliceData(data))).Spec_dst)
		case h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
			return netip.AddrFrom16((*unix.Inet6Pktinfo)(unsafe.Pointer(unsafe.SliceData(data))).Addr).Unmap()
		}
		buf = buf[min(cmsgAlign(h.Len), uint64(len(buf))):]
	}
	return netip.Addr{}
}

func cmsgAlign(n uint64) uint64 { return (n + 7) &^ 7 }

// SendBatch is the messages of sendmmsg(2).
type SendBatch struct {
	msgs     []mmsghdr
	iovs     []unix.Iovec
	names    []unix.RawSockaddrInet6
	controls []control
	sent     int
	filled   int
}

// NewSendBatch returns a batch of up to n datagrams.
func NewSendBatch(n int) *SendBatch {
	return &SendBatch{
		msgs:     make([]mmsghdr, n),
		iovs:     make([]unix.Iovec, n),
		names:    make([]unix.RawSockaddrInet6, n),
		controls: make([]control, n),
	}
}

// Reset empties the batch; it refers to no payload any more.
func (b *SendBatch) Reset() {
	clear(b.iovs[:b.filled])
	b.sent, b.filled = 0, 0
}

// Full reports whether there is no room for another datagram.
func (b *SendBatch) Full() bool { return b.filled == len(b.msgs) }

// Left returns how many datagrams have not been sent.
func (b *SendBatch) Left() int { return b.filled - b.sent }

// Skip gives up the next datagram.
func (b *SendBatch) Skip() { b.sent++ }

// Add adds a datagram; the batch must not be Full, and p must stay as it is
// until it has been sent. peer is the zero AddrPort on a connected socket, local
// the address to send from or the zero Addr, scope the interface of a link-local
// peer.
func (b *SendBatch) Add(p []byte, peer netip.AddrPort, scope uint32, local netip.Addr) {
	i := b.filled
	b.filled++
	b.iovs[i] = unix.Iovec{Base: unsafe.SliceData(p), Len: uint64(len(p))}
	h := &b.msgs[i].hdr
	*h = unix.Msghdr{Iov: &b.iovs[i], Iovlen: 1}
	if peer.IsValid() {
		h.Name = (*byte)(unsafe.Pointer(&b.names[i]))
		h.Namelen = setName(&b.names[i], peer, scope)
	}
	if local.IsValid() {
		h.Control = (*byte)(unsafe.Pointer(&b.controls[i]))
		h.Controllen = setLocal(&b.controls[i], local)
	}
}

func setName(name *unix.RawSockaddrInet6, peer netip.AddrPort, scope uint32) uint32 {
	ip := peer.Addr()
	if ip.Is4() || ip.Is4In6() {
		in := (*unix.RawSockaddrInet4)(unsafe.Pointer(name))
		*in = unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: ip.As4()}
		htons(&in.Port, peer.Port())
		return unix.SizeofSockaddrInet4
	}
	*name = unix.RawSockaddrInet6{Family: unix.AF_INET6, Addr: ip.As16(), Scope_id: scope}
	htons(&name.Port, peer.Port())
	return unix.SizeofSockaddrInet6
}

// setLocal makes the control message that chooses the source address, and
// returns its length.
func setLocal(c *control, local netip.Addr) uint64 {
	*c = control{}
	h := (*unix.Cmsghdr)(unsafe.Pointer(c))
	data := unsafe.Add(unsafe.Pointer(c), unix.SizeofCmsghdr)
	if local.Is4() {
		h.Level, h.Type, h.Len = unix.IPPROTO_IP, unix.IP_PKTINFO, unix.SizeofCmsghdr+unix.SizeofInet4Pktinfo
		(*unix.Inet4Pktinfo)(data).Spec_dst = local.As4()
	} else {
		h.Level, h.Type, h.Len = unix.IPPROTO_IPV6, unix.IPV6_PKTINFO, unix.SizeofCmsghdr+unix.SizeofInet6Pktinfo
		(*unix.Inet6Pktinfo)(data).Addr = local.As16()
	}
	return cmsgAlign(h.Len)
}

// Send sends what the batch has left, sendmmsg(2), and returns how many
// datagrams went. An errno is that of the first one that is left.
func (b *SendBatch) Send(fd int32) (n int, errno unix.Errno) {
	left := b.msgs[b.sent:b.filled]
	r, _, e := syscall.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(left))), uintptr(len(left)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	if e != 0 {
		return 0, e
	}
	b.sent += int(r)
	return int(r), 0
}

// DatagramSocket opens a non-blocking UDP socket, socket(2). The descriptor is
// the caller's.
func DatagramSocket(family int) (int32, unix.Errno) {
	r, _, e := syscall.RawSyscall(unix.SYS_SOCKET, uintptr(family), unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if e != 0 {
		return -1, e
	}
	return int32(r), 0
}
