package http1

import (
	"strconv"

	"3proxyd/proto/hostport"
)

// The limits of a chunked body. Extensions and trailer fields are counted
// over the whole body, in bytes.
const (
	// MaxChunk is the size in bytes of the largest chunk.
	MaxChunk = 1<<60 - 1
	// MaxChunkExtensions bounds all chunk extensions together.
	MaxChunkExtensions = 4 << 10
	// MaxTrailer bounds the trailer section.
	MaxTrailer = 8 << 10

	maxSizeDigits = 16
	// trailerName holds the longest name that is not allowed in a trailer, but for
	// those in "Proxy-".
	trailerName = len("proxy-authorization")
)

type chunkState uint8

const (
	chunkSize chunkState = iota // at the first digit of a size
	chunkDigits
	chunkExt
	chunkSizeLF
	chunkData
	chunkDataCR
	chunkDataLF
	trailerStart // at the start of a trailer line
	trailerField
	trailerValue
	trailerLF
	trailerEndLF
	chunkDone
	chunkFailed
)

// Chunked follows a body in the chunked transfer coding (RFC 9112 section
// 7.1), in pieces of any size. The zero value is at the start of a body.
//
// It takes sizes of hexadecimal digits, no blanks around them, CRLF as line end.
// Extensions are dropped by Pass: they end at each hop (RFC 9112 section 7.1.1).
type Chunked struct {
	// Limit bounds the data of the body in bytes; 0 means that nothing does. A
	// body is refused with 413 at the size of the chunk that exceeds it.
	Limit    int64
	total    int64 // of the sizes so far, with a Limit
	left     int64 // of the chunk's size, then of its data
	ext      int32 // bytes of extensions so far
	trailer  int32 // bytes of the trailer section so far
	line     int32 // bytes of the line with the size so far
	state    chunkState
	digits   uint8
	respell  bool  // the line with the size is not spelled as Pass does
	nameLen  uint8 // of a trailer field's name, at most trailerName+1
	nameByte [trailerName]byte
	err      *Error
}

// Done tells whether the body has ended.
func (c *Chunked) Done() bool { return c.state == chunkDone }

// Left returns how many bytes of the current chunk's data are still to come.
// It is 0 outside of the data.
func (c *Chunked) Left() int64 {
	if c.state != chunkData {
		return 0
	}
	return c.left
}

// Skip takes n bytes of the current chunk's data as seen, at most Left: they
// were moved without passing through Next.
func (c *Chunked) Skip(n int64) {
	if n < 0 || n > c.Left() {
		c.fail(errChunkUse)
		return
	}
	if c.state == chunkData {
		c.took(n)
	}
}

func (c *Chunked) took(n int64) {
	c.left -= n
	if c.left == 0 {
		c.state = chunkDataCR
	}
}

func (c *Chunked) fail(e *Error) *Error {
	c.state, c.err = chunkFailed, e
	return e
}

// Next takes n bytes of in, among which is at most one stretch of data, the
// end of those n. It takes all of in unless there is data, the body ends or it
// is malformed; done tells that it has ended. What follows the body is not
// taken. An error is an *Error with the status to answer to a request; nothing
// of in is taken then.
func (c *Chunked) Next(in []byte) (n int, data []byte, done bool, err error) {
	switch c.state {
	case chunkFailed:
		return 0, nil, false, c.err
	case chunkDone:
		return 0, nil, true, nil
	}
	for n < len(in) {
		if c.state == chunkData {
			size := min(int64(len(in)-n), c.left)
			c.took(size)
			end := n + int(size)
			return end, in[n:end], false, nil
		}
		if e := c.step(in[n]); e != nil {
			return 0, nil, false, c.fail(e)
		}
		n++
		if c.state == chunkDone {
			return n, nil, true, nil
		}
	}
	return n, nil, false, nil
}

// Pass takes n bytes of in, as much as belongs to the body, and returns what to
// send on for them: a part of in, or when the sizes have leading zeros,
// extensions or come in pieces, a body with the same data and trailer appended
// to scratch. A size is sent on when its line is complete. On an error out is
// what may be sent before it.
func (c *Chunked) Pass(scratch, in []byte) (out []byte, n int, done bool, err error) {
	if c.inSizeLine() {
		return c.rewrite(scratch, in)
	}
	begun := *c
	c.respell = false
	for {
		taken, _, done, err := c.Next(in[n:])
		n += taken
		switch {
		case c.respell:
			*c = begun
			return c.rewrite(scratch, in)
		case err != nil || done:
			return in[:n], n, done, err
		case n < len(in):
		case c.inSizeLine():
			return in[:n-int(c.line)], n, false, nil
		default:
			return in, n, false, nil
		}
	}
}

// inSizeLine tells whether a size has begun whose line has not ended.
func (c *Chunked) inSizeLine() bool {
	return c.state == chunkDigits || c.state == chunkExt || c.state == chunkSizeLF
}

// rewrite is Pass for what must be spelled anew.
func (c *Chunked) rewrite(out, in []byte) (_ []byte, n int, done bool, err error) {
	switch c.state {
	case chunkFailed:
		return out, 0, false, c.err
	case chunkDone:
		return out, 0, true, nil
	}
	for n < len(in) && c.state != chunkDone {
		if c.state == chunkData {
			size := min(int64(len(in)-n), c.left)
			out = append(out, in[n:n+int(size)]...)
			c.took(size)
			n += int(size)
			continue
		}
		before := c.state
		if e := c.step(in[n]); e != nil {
			return out, n, false, c.fail(e)
		}
		switch {
		case before == chunkSizeLF:
			out = append(strconv.AppendInt(out, c.left, 16), "\r\n"...)
		case before >= chunkDataCR:
			out = append(out, in[n])
		}
		n++
	}
	return out, n, c.state == chunkDone, nil
}

// step takes one byte that is not data.
func (c *Chunked) step(b byte) *Error {
	switch c.state {
	case chunkSize:
		c.state, c.digits, c.left, c.line = chunkDigits, 0, 0, 1
		return c.sizeByte(b)
	case chunkDigits:
		c.line++
		return c.sizeByte(b)
	case chunkExt:
		c.line++
		return c.extByte(b)
	case chunkSizeLF:
		return c.sizeEnd(b)
	case chunkDataCR:
		return c.expect(b, '\r', chunkDataLF, errChunkEnd)
	case chunkDataLF:
		return c.expect(b, '\n', chunkSize, errChunkEnd)
	}
	if c.trailer++; c.trailer > MaxTrailer {
		return errTrailerMax
	}
	return c.trailerByte(b)
}

func (c *Chunked) expect(b, want byte, next chunkState, e *Error) *Error {
	if b != want {
		return e
	}
	c.state = next
	return nil
}

func (c *Chunked) sizeByte(b byte) *Error {
	if d := hostport.HexDigit(b); d >= 0 {
		c.respell = c.respell || c.digits > 0 && c.left == 0
		c.digits++
		if c.digits > maxSizeDigits || c.left > MaxChunk>>4 {
			return errChunkSize
		}
		c.left = c.left<<4 | int64(d)
		return nil
	}
	switch {
	case c.digits == 0:
		return errChunkSize
	case b == '\r':
		c.state = chunkSizeLF
	case b == ';':
		c.state = chunkExt
		return c.countExt()
	default:
		return errChunkSize
	}
	return nil
}

func (c *Chunked) countExt() *Error {
	c.respell = true
	if c.ext++; c.ext > MaxChunkExtensions {
		return errChunkExtMax
	}
	return nil
}

func (c *Chunked) extByte(b byte) *Error {
	if b == '\r' {
		c.state = chunkSizeLF
		return nil
	}
	if b < ' ' && b != '\t' || b == 0x7f {
		return errChunkExt
	}
	return c.countExt()
}

func (c *Chunked) sizeEnd(b byte) *Error {
	next := chunkData
	if c.left == 0 {
		next = trailerStart
	}
	if c.Limit > 0 {
		if c.left > c.Limit-c.total {
			return ErrBodyLong
		}
		c.total += c.left
	}
	return c.expect(b, '\n', next, errChunkSize)
}

func (c *Chunked) trailerByte(b byte) *Error {
	switch c.state {
	case trailerStart:
		if b == '\r' {
			c.state = trailerEndLF
			return nil
		}
		c.state, c.nameLen = trailerField, 0
		return c.trailerNameByte(b)
	case trailerField:
		return c.trailerNameByte(b)
	case trailerValue:
		if b == '\r' {
			c.state = trailerLF
			return nil
		}
		if b < ' ' && b != '\t' || b == 0x7f {
			return errTrailer
		}
		return nil
	case trailerLF:
		return c.expect(b, '\n', trailerStart, errTrailer)
	}
	return c.expect(b, '\n', chunkDone, errTrailer)
}

func (c *Chunked) trailerNameByte(b byte) *Error {
	if b == ':' && c.nameLen > 0 {
		if c.forbiddenTrailer() {
			return errTrailerName
		}
		c.state = trailerValue
		return nil
	}
	if !tokenBytes[b] {
		return errTrailer
	}
	if int(c.nameLen) < trailerName {
		c.nameByte[c.nameLen] = b
	}
	c.nameLen = min(c.nameLen+1, uint8(trailerName+1))
	return nil
}

// forbiddenTrailer tells whether the field must not be merged into the head by
// anyone, and so not be sent on (RFC 9110 section 6.5.1).
func (c *Chunked) forbiddenTrailer() bool {
	if int(c.nameLen) > trailerName {
		return equalFold(c.nameByte[:len("proxy-")], "proxy-")
	}
	name := c.nameByte[:c.nameLen]
	switch classify(name) {
	case kindOther, kindVia, kindAccept, kindClientInfo:
		return equalFold(name, "authorization") || equalFold(name, "content-encoding") ||
			equalFold(name, "content-type") || equalFold(name, "content-range")
	}
	return true
}
