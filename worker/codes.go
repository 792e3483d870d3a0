package worker

import (
	"golang.org/x/sys/unix"

	"3proxyd/ipc"
)

// code is the error code of the log (%E); the numbers are those of 3proxy.
// Codes 1 to 10 come from acl.
type code int16

const (
	codeOK          code = 0
	codeDenied      code = 1
	codeNoRule      code = 3
	codeNoUser      code = 4
	codeSocket      code = 11
	codeBind        code = 12
	codeConnect     code = 13
	codeLoop        code = 14
	codeNoResources code = 21
	codeTimeout     code = 92
	codeUnsent      code = 94
	codeClientReset code = 95
	codeServerReset code = 96
	codeNoHost      code = 100
	codeNotTLS      code = 300
	codeBadHello    code = 310
	codeBadServer   code = 340
	codeSocksError  code = 400
	// codeBindAbandoned: the client of a BIND went before its peer came.
	codeBindAbandoned code = 460
	codeHTTPError     code = 500
	codeBadHeader     code = 800
	codeUnknown       code = 801
	// codeDNSError and a response code: a query that is refused.
	codeDNSError    code = 850
	codeUnsupported code = 999
)

// count raises the counter of the class a code belongs to.
func (v *service) count(c code) {
	k, ok := counterOf(c)
	if ok {
		v.cell.Add(k, 1)
	}
}

func counterOf(c code) (ipc.Counter, bool) {
	switch {
	case c >= codeDenied && c <= codeNoRule, c == codeLoop:
		return ipc.Denied, true
	case c >= codeNoUser && c < codeSocket:
		return ipc.AuthFailed, true
	case c >= codeSocket && c <= codeConnect:
		return ipc.ConnectFailed, true
	case c == codeNoResources:
		return ipc.NoResources, true
	case c == codeTimeout:
		return ipc.TimedOut, true
	case c == codeClientReset:
		return ipc.ResetByClient, true
	case c == codeServerReset, c == codeUnsent:
		return ipc.ResetByServer, true
	case c == codeNoHost:
		return ipc.NameFailed, true
	case c >= codeNotTLS && c < 600, c >= codeBadHeader && c < 900, c == codeUnsupported:
		return ipc.ProtocolErrors, true
	}
	return 0, false
}

// connectCode turns the failure of a call that opens a connection into a code.
func connectCode(op string, errno unix.Errno) code {
	switch errno {
	case unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.ENOSPC:
		return codeNoResources
	}
	switch op {
	case "socket", "setsockopt", "epoll_ctl":
		return codeSocket
	case "bind":
		return codeBind
	}
	return codeConnect
}
