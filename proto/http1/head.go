package http1

import "bytes"

// Scan is how far an incomplete head has been examined, so that it is not read
// from its start each time more of it arrives. A caller that uses one Request
// or Response for many connections keeps the Scan of each.
type Scan struct {
	pos   int32 // everything before has been searched for line ends
	line  int32 // start of the line that pos is in
	start int32 // start of the first line that is not empty
	blank uint8 // empty lines before it
	lines int16 // lines after the first
}

// endOfHead returns the length of the head at the start of buf, up to and with
// the empty line; 0 when it is not complete. With strict every line must end
// with CRLF, otherwise LF will do.
func (s *Scan) endOfHead(buf []byte, strict bool) (int, *Error) {
	// What lies further on cannot end a head of allowed size.
	buf = buf[:min(len(buf), MaxHead+2*maxBlankLines+1)]
	for int(s.pos) < len(buf) {
		i := bytes.IndexByte(buf[s.pos:], '\n')
		if i < 0 {
			s.pos = int32(len(buf))
			break
		}
		lf := s.pos + int32(i)
		end := lf
		if lf > s.line && buf[lf-1] == '\r' {
			end--
		} else if strict {
			return 0, errBareLF
		}
		empty, first := end == s.line, s.line == s.start
		s.line, s.pos = lf+1, lf+1
		switch {
		case empty && !first:
			return int(lf + 1), nil
		case !first:
			if s.lines++; s.lines > MaxFields {
				return 0, errFields
			}
		case empty:
			s.start = lf + 1
			if s.blank++; s.blank > maxBlankLines {
				return 0, errBlankLines
			}
		}
	}
	return 0, nil
}

// firstLineOpen tells whether the first line has not ended yet.
func (s *Scan) firstLineOpen() bool { return s.line == s.start }

// nextLine splits the first line off b, which holds one, and drops its end.
func nextLine(b []byte) (line, rest []byte) {
	i := bytes.IndexByte(b, '\n')
	line, rest = b[:i], b[i+1:]
	if i > 0 && line[i-1] == '\r' {
		line = line[:i-1]
	}
	return line, rest
}

// parseFields parses the field lines up to the empty line at the end of b and
// appends them to fields. With lenient, blanks before a colon are dropped (RFC
// 9112 section 5.1, responses) instead of refused.
func parseFields(fields []Field, b []byte, lenient bool) ([]Field, *Error) {
	for {
		var line []byte
		line, b = nextLine(b)
		if len(line) == 0 {
			return fields, nil
		}
		if len(fields) == MaxFields {
			return fields, errFields
		}
		f, err := parseField(line, lenient)
		if err != nil {
			return fields, err
		}
		fields = append(fields, f)
	}
}

func parseField(line []byte, lenient bool) (Field, *Error) {
	n := tokenLen(line)
	if n == 0 {
		if isBlank(line[0]) {
			return Field{}, errFold
		}
		return Field{}, errFieldName
	}
	colon := n
	for lenient && colon < len(line) && isBlank(line[colon]) {
		colon++
	}
	if colon == len(line) || line[colon] != ':' {
		if colon < len(line) && isBlank(line[colon]) {
			return Field{}, errFieldColon
		}
		return Field{}, errFieldName
	}
	value := line[colon+1:]
	if !noControls(value) {
		return Field{}, errFieldValue
	}
	return Field{Name: line[:n:n], Value: trim(value), kind: classify(line[:n])}, nil
}
