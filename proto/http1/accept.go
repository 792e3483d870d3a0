package http1

import "bytes"

// Format is the media type of an error page.
type Format uint8

// The formats.
const (
	HTML Format = iota
	Text
	JSON
)

var contentTypes = [...]string{
	HTML: "text/html; charset=utf-8",
	Text: "text/plain; charset=utf-8",
	JSON: "application/json",
}

// maxRanges bounds the media ranges of Accept that are looked at.
const maxRanges = 32

// Negotiate returns the format that an Accept field prefers (RFC 9110 section
// 12.5.1): the one of the highest weight, the first of several; HTML when it
// names none.
func Negotiate(accept []byte) Format {
	best, weight := HTML, 0
	for n := 0; accept != nil && n < maxRanges; n++ {
		var element []byte
		element, accept = nextElement(accept)
		mediaRange, parameters, _ := bytes.Cut(element, []byte(";"))
		f, ok := formatOf(trim(mediaRange))
		if w := weightOf(parameters); ok && w > weight {
			best, weight = f, w
		}
	}
	return best
}

func formatOf(mediaRange []byte) (Format, bool) {
	switch {
	case equalFold(mediaRange, "*/*"), equalFold(mediaRange, "text/*"),
		equalFold(mediaRange, "text/html"), equalFold(mediaRange, "application/xhtml+xml"):
		return HTML, true
	case equalFold(mediaRange, "text/plain"):
		return Text, true
	case equalFold(mediaRange, "application/json"), equalFold(mediaRange, "application/*"),
		len(mediaRange) > 5 && equalFold(mediaRange[len(mediaRange)-5:], "+json"):
		return JSON, true
	}
	return HTML, false
}

// weightOf returns the weight among the parameters of a media range in
// thousandths (RFC 9110 section 12.4.2); 0 when it is malformed.
func weightOf(parameters []byte) int {
	for parameters != nil {
		var p []byte
		p, parameters, _ = bytes.Cut(parameters, []byte(";"))
		name, value, _ := bytes.Cut(trim(p), []byte("="))
		if equalFold(name, "q") {
			return thousandths(value)
		}
	}
	return 1000
}

func thousandths(b []byte) int {
	if len(b) == 0 || len(b) > 5 || b[0] != '0' && b[0] != '1' || len(b) > 1 && b[1] != '.' {
		return 0
	}
	n := int(b[0]-'0') * 1000
	for i, unit := 2, 100; i < len(b); i, unit = i+1, unit/10 {
		if b[i] < '0' || b[i] > '9' {
			return 0
		}
		n += int(b[i]-'0') * unit
	}
	return min(n, 1000)
}
