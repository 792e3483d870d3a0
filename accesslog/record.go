package accesslog

import (
	"math"
	"math/bits"
	"net/netip"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"
)

// The fields a client fills are cut to these lengths in bytes.
const (
	maxNameField = 1024
	maxTextBytes = 4096
)

// Record is what one line tells. Addresses that are not known are logged as
// 0.0.0.0, and IPv4-mapped ones as IPv4.
type Record struct {
	// Start and End are in nanoseconds since 1970. The time of the line is
	// End; a zero Start means that there is no duration.
	Start, End int64
	// Service is the kind of service (%N), ServicePort its port (%p).
	Service     string
	ServicePort uint16
	// User (%U) and Host (%n) are as the client gave them, "" for none.
	User, Host string
	// Client (%C %c) and Server (%R %r) are the two ends of the session.
	Client, Server netip.AddrPort
	// Internal (%i) is the address the client connected to, External (%e) the
	// source address towards the server.
	Internal, External netip.Addr
	// Requested is the target asked for, once resolved (%Q %q).
	Requested netip.AddrPort
	// Code is the result (%E).
	Code int
	// BytesIn came from the server (%I), BytesOut from the client (%O).
	BytesIn, BytesOut uint64
	// Hops counts the parents on the way (%h).
	Hops int
	// Text is what the service has to say (%T), for example the request line.
	Text []byte
}

// Append appends the line of a record, without line feed, and returns the
// extended slice. It allocates nothing but room in dst.
func (f *Format) Append(dst []byte, r *Record) []byte {
	var t moment
	if f.calendar {
		t.split(r.End, f.loc)
	}
	for i := range f.items {
		it := &f.items[i]
		if it.letter == 0 {
			dst = append(dst, it.literal...)
			continue
		}
		dst = f.appendField(dst, it, r, &t)
	}
	return dst
}

// moment is a broken-down time; offset is in seconds east of UTC.
type moment struct {
	year, month, day     int
	hour, minute, second int
	offset               int
}

func (m *moment) split(nanos int64, loc *time.Location) {
	t := time.Unix(0, nanos).In(loc)
	year, month, day := t.Date()
	m.year, m.month, m.day = year, int(month), day
	m.hour, m.minute, m.second = t.Clock()
	_, m.offset = t.Zone()
}

func (f *Format) appendField(dst []byte, it *item, r *Record, t *moment) []byte {
	switch it.letter {
	case 'y', 'Y', 'm', 'o', 'd', 'H', 'M', 'S', 'z':
		return appendCalendar(dst, it.letter, t)
	case 't', '.', 'D', 'b', 'B':
		return appendTiming(dst, it.letter, r)
	case 'C', 'c', 'R', 'r', 'i', 'e', 'Q', 'q':
		return appendEndpoint(dst, it.letter, r)
	case 'U', 'n', 'T':
		return f.appendInput(dst, it, r)
	}
	return appendResult(dst, it.letter, r)
}

const months = "JanFebMarAprMayJunJulAugSepOctNovDec"

func appendCalendar(dst []byte, letter byte, t *moment) []byte {
	switch letter {
	case 'y':
		return appendPadded(dst, uint64(t.year%100), 2)
	case 'Y':
		return appendPadded(dst, uint64(t.year), 4)
	case 'm':
		return appendPadded(dst, uint64(t.month), 2)
	case 'o':
		return append(dst, months[3*t.month-3:3*t.month]...)
	case 'd':
		return appendPadded(dst, uint64(t.day), 2)
	case 'H':
		return appendPadded(dst, uint64(t.hour), 2)
	case 'M':
		return appendPadded(dst, uint64(t.minute), 2)
	case 'S':
		return appendPadded(dst, uint64(t.second), 2)
	}
	minutes, sign := t.offset/60, byte('+')
	if minutes < 0 {
		minutes, sign = -minutes, '-'
	}
	dst = appendPadded(append(dst, sign), uint64(minutes/60), 2)
	return appendPadded(dst, uint64(minutes%60), 2)
}

const (
	milli = int64(time.Millisecond)
	unit  = int64(time.Second)
)

func appendTiming(dst []byte, letter byte, r *Record) []byte {
	switch letter {
	case 't':
		return appendPadded(dst, uint64(max(r.End, 0)/unit), 10)
	case '.':
		return appendPadded(dst, uint64(max(r.End, 0)%unit/milli), 3)
	case 'b':
		return strconv.AppendUint(dst, rate(r.BytesOut, r.duration()), 10)
	case 'B':
		return strconv.AppendUint(dst, rate(r.BytesIn, r.duration()), 10)
	}
	return strconv.AppendUint(dst, r.duration(), 10)
}

// duration is in milliseconds.
func (r *Record) duration() uint64 {
	if r.Start == 0 || r.End <= r.Start {
		return 0
	}
	return uint64(r.End/milli - r.Start/milli)
}

// rate is in bytes per second, 0 when there is no duration.
func rate(bytes, millis uint64) uint64 {
	hi, lo := bits.Mul64(bytes, 1000)
	switch {
	case millis == 0:
		return 0
	case hi >= millis:
		return math.MaxUint64
	}
	q, _ := bits.Div64(hi, lo, millis)
	return q
}

func appendEndpoint(dst []byte, letter byte, r *Record) []byte {
	switch letter {
	case 'C':
		return appendAddr(dst, r.Client.Addr())
	case 'c':
		return appendPort(dst, r.Client.Port())
	case 'R':
		return appendAddr(dst, r.Server.Addr())
	case 'r':
		return appendPort(dst, r.Server.Port())
	case 'i':
		return appendAddr(dst, r.Internal)
	case 'e':
		return appendAddr(dst, r.External)
	case 'Q':
		return appendAddr(dst, r.Requested.Addr())
	}
	return appendPort(dst, r.Requested.Port())
}

func appendAddr(dst []byte, a netip.Addr) []byte {
	if !a.IsValid() {
		return append(dst, "0.0.0.0"...)
	}
	return a.Unmap().WithZone("").AppendTo(dst)
}

func appendPort(dst []byte, port uint16) []byte { return strconv.AppendUint(dst, uint64(port), 10) }

func appendResult(dst []byte, letter byte, r *Record) []byte {
	switch letter {
	case 'N':
		if r.Service == "" {
			return append(dst, '-')
		}
		return append(dst, r.Service...)
	case 'p':
		return appendPort(dst, r.ServicePort)
	case 'E':
		return appendPadded(dst, uint64(max(r.Code, 0)), 5)
	case 'I':
		return strconv.AppendUint(dst, r.BytesIn, 10)
	case 'O':
		return strconv.AppendUint(dst, r.BytesOut, 10)
	}
	return strconv.AppendInt(dst, int64(r.Hops), 10)
}

// appendPadded appends n with at least the given number of digits.
func appendPadded(dst []byte, n uint64, width int) []byte {
	var digits [20]byte
	text := strconv.AppendUint(digits[:0], n, 10)
	for i := len(text); i < width; i++ {
		dst = append(dst, '0')
	}
	return append(dst, text...)
}

func (f *Format) appendInput(dst []byte, it *item, r *Record) []byte {
	switch {
	case it.letter == 'U' && r.User == "":
		return append(dst, '-')
	case it.letter == 'U':
		return appendFiltered(f, dst, r.User[:min(len(r.User), maxNameField)])
	case it.letter == 'T':
		return f.appendText(dst, r.Text[:min(len(r.Text), maxTextBytes)], it.from, it.to)
	case isName(r.Host):
		return appendFiltered(f, dst, r.Host[:min(len(r.Host), maxNameField)])
	}
	dst = append(dst, '[')
	dst = appendAddr(dst, r.Requested.Addr())
	return append(dst, ']')
}

// isName excludes IPv6 addresses: %n then shows the address asked for in
// brackets, as it does when there is no host.
func isName(host string) bool {
	for i := range len(host) {
		if host[i] == ':' {
			return false
		}
	}
	return host != ""
}

// appendText appends the fields from..to of the text, which runs of white
// space separate; of each run between two of them the last byte is kept.
func (f *Format) appendText(dst, text []byte, from, to int) []byte {
	if from == 0 && to == maxTextField {
		return appendFiltered(f, dst, text)
	}
	for field, at := 0, 0; field <= to; field++ {
		end := at
		for end < len(text) && !blank(text[end]) {
			end++
		}
		if field >= from {
			dst = appendFiltered(f, dst, text[at:end])
		}
		if end == len(text) {
			return dst
		}
		at = end
		for at < len(text) && blank(text[at]) {
			at++
		}
		if field >= from && field < to {
			dst = appendFiltered(f, dst, text[at-1:at])
		}
	}
	return dst
}

// blank is isspace(3) in the C locale.
func blank(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// appendFiltered appends what a client sent, with what must not be in a line
// replaced.
func appendFiltered[T string | []byte](f *Format, dst []byte, s T) []byte {
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c < ' ' || c == 0x7f || f.filterASCII[c] {
				c = f.replacement
			}
			dst = append(dst, c)
			i++
			continue
		}
		size, ok := f.runeAt(string(s[i:min(len(s), i+utf8.UTFMax)]))
		for _, b := range []byte(s[i : i+size]) {
			if !ok {
				b = f.replacement
			}
			dst = append(dst, b)
		}
		i += size
	}
	return dst
}

// runeAt returns the size of the first character of s, and whether it may be
// logged.
func (f *Format) runeAt(s string) (size int, ok bool) {
	r, size := utf8.DecodeRuneInString(s)
	if r == utf8.RuneError && size == 1 || !unicode.IsPrint(r) {
		return size, false
	}
	for _, banned := range f.filterRunes {
		if r == banned {
			return size, false
		}
	}
	return size, true
}
