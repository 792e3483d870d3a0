package worker

import (
	"bytes"

	"3proxyd/proto/hostport"
)

// appendTargetText appends a request target as it is logged: without userinfo
// (RFC 3986 section 3.2.1), and without an authority that is none but may hold an
// encoded one. Such targets are refused, but they are logged.
func appendTargetText(line, method, target []byte) []byte {
	start, rest := withoutUserinfo(method, target)
	line = append(line, target[:start]...)
	end := len(target)
	if i := bytes.IndexAny(target[rest:], "/?#"); i >= 0 {
		end = rest + i
	}
	if bytes.IndexByte(target[rest:end], '%') >= 0 && target[0] != '/' {
		rest = end
	}
	return append(line, target[rest:]...)
}

// withoutUserinfo returns where the authority of a target begins and where what
// may be shown of it does. Where no host can be made out, because of a slash in the
// password for example, all up to the last @ may be userinfo.
func withoutUserinfo(method, target []byte) (start, rest int) {
	last := bytes.LastIndexByte(target, '@')
	if last >= 0 && string(method) == "CONNECT" {
		return 0, last + 1
	}
	if len(target) > 0 && target[0] == '/' && !bytes.Contains(target, []byte("//")) {
		return 0, 0
	}
	if last < 0 {
		start, _ = authorityStart(target)
		return start, start
	}
	start, known := authorityStart(target[:last])
	end := len(target)
	if i := bytes.IndexAny(target[start:], "/?#"); i >= 0 {
		end = start + i
	}
	if at := bytes.LastIndexByte(target[start:end], '@'); at >= 0 && known {
		return start, start + at + 1
	}
	_, _, _, ok := hostport.ParseAuthority(target[start:end])
	if ok && known && (end == len(target) || target[end] != '#') {
		return start, start
	}
	return start, last + 1
}

// authorityStart returns where the authority of a target begins. It is not known
// for certain without a scheme that is followed by two slashes.
func authorityStart(target []byte) (start int, known bool) {
	known = true
	if i := bytes.Index(target, []byte("//")); i >= 0 {
		start = i
	} else if i := bytes.IndexAny(target, `/\`); i > 0 && target[i-1] == ':' {
		start, known = i, false
	} else {
		return 0, false
	}
	return len(target) - len(bytes.TrimLeft(target[start:], `/\`)), known
}
