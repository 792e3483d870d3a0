package accesslog

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// defaultReplacement stands for unprintable characters when the format has no
// filter. It is not a blank, which would shift the fields of the line.
const defaultReplacement = '_'

// Error says what is wrong with a format, and at which byte.
type Error struct {
	Offset int
	Text   string
}

// Error returns the text with the position, counted from 1.
func (e *Error) Error() string { return fmt.Sprintf("log format, byte %d: %s", e.Offset+1, e.Text) }

// Format is a compiled logformat. It is immutable.
type Format struct {
	items []item
	loc   *time.Location
	// calendar is set when an item needs the broken-down time.
	calendar bool

	replacement byte
	filterASCII [utf8.RuneSelf]bool
	filterRunes string
}

// item is a piece of a line: a literal, or the field of a letter. from and to
// are the first and last field of %N1-N2T, counted from 0.
type item struct {
	letter   byte // 0 for a literal
	literal  string
	from, to int
}

// The letters of 3proxy.cfg(5); those of the calendar depend on the time zone.
const (
	letters         = "yYmodHMSt.zDbBUNpECcRrieQqnIOhT"
	calendarLetters = "yYmodHMSz"
)

// maxTextField bounds N1 and N2 of %N1-N2T.
const maxTextField = 9999

// Compile reads a logformat as in 3proxy.cfg(5): an optional filter "-CHARS+R",
// then "L" for local time or "G" for UTC, then text with %-letters. The filter
// replaces each of CHARS (up to the first "+") in %U, %n and %T with R. An
// error is an *Error.
func Compile(format string) (*Format, error) {
	f := &Format{replacement: defaultReplacement}
	p := parser{format: format, f: f}
	if err := p.run(); err != nil {
		return nil, err
	}
	return f, nil
}

type parser struct {
	format string
	at     int
	f      *Format
	// literal collects the text between two letters.
	literal strings.Builder
}

func (p *parser) fail(offset int, text string, args ...any) error {
	return &Error{offset, fmt.Sprintf(text, args...)}
}

func (p *parser) run() error {
	if err := p.filter(); err != nil {
		return err
	}
	if err := p.zone(); err != nil {
		return err
	}
	for p.at < len(p.format) {
		if err := p.step(); err != nil {
			return err
		}
	}
	p.endLiteral()
	return nil
}

func (p *parser) filter() error {
	if !strings.HasPrefix(p.format, "-") {
		return nil
	}
	chars, rest, found := strings.Cut(p.format[1:], "+")
	if !found {
		return p.fail(0, `filter "-CHARS+R" without "+"`)
	}
	p.at = 1 + len(chars) + 1
	if rest == "" || rest[0] < ' ' || rest[0] > '~' {
		return p.fail(p.at, "the replacement after \"+\" must be a printable ASCII character")
	}
	p.f.replacement = rest[0]
	p.at++
	for _, r := range chars {
		if r < utf8.RuneSelf {
			p.f.filterASCII[r] = true
		}
	}
	p.f.filterRunes = chars
	return nil
}

func (p *parser) zone() error {
	if p.at >= len(p.format) {
		return p.fail(p.at, "L (local time) or G (UTC) expected")
	}
	switch p.format[p.at] {
	case 'L':
		p.f.loc = time.Local
	case 'G':
		p.f.loc = time.UTC
	default:
		return p.fail(p.at, "L (local time) or G (UTC) expected, not %q", p.format[p.at])
	}
	p.at++
	return nil
}

func (p *parser) step() error {
	c := p.format[p.at]
	if c < ' ' && c != '\t' || c == 0x7f {
		return p.fail(p.at, "control character %q", c)
	}
	if c != '%' {
		p.literal.WriteByte(c)
		p.at++
		return nil
	}
	start := p.at
	p.at++
	if p.at == len(p.format) {
		return p.fail(start, "nothing after %%")
	}
	c = p.format[p.at]
	switch {
	case c == '%':
		p.literal.WriteByte('%')
		p.at++
	case c >= '0' && c <= '9':
		return p.textFields(start)
	case strings.IndexByte(letters, c) >= 0:
		p.add(item{letter: c, to: maxTextField})
		p.at++
	default:
		r, _ := utf8.DecodeRuneInString(p.format[p.at:])
		return p.fail(start, "unknown letter %q after %%", r)
	}
	return nil
}

// textFields reads %N1-N2T.
func (p *parser) textFields(start int) error {
	from, ok := p.number()
	if !ok || !p.skip('-') {
		return p.fail(start, "field numbers of %%N1-N2T expected")
	}
	to, ok := p.number()
	if !ok || !p.skip('T') {
		return p.fail(start, "field numbers of %%N1-N2T expected")
	}
	if from < 1 || to < from || to > maxTextField {
		return p.fail(start, "field numbers of %%N1-N2T must be 1 to %d, in order", maxTextField)
	}
	p.add(item{letter: 'T', from: from - 1, to: to - 1})
	return nil
}

func (p *parser) number() (int, bool) {
	begin := p.at
	for p.at < len(p.format) && p.format[p.at] >= '0' && p.format[p.at] <= '9' {
		p.at++
	}
	n, err := strconv.Atoi(p.format[begin:p.at])
	return n, err == nil
}

func (p *parser) skip(c byte) bool {
	if p.at < len(p.format) && p.format[p.at] == c {
		p.at++
		return true
	}
	return false
}

func (p *parser) add(it item) {
	p.endLiteral()
	p.f.items = append(p.f.items, it)
	if strings.IndexByte(calendarLetters, it.letter) >= 0 {
		p.f.calendar = true
	}
}

func (p *parser) endLiteral() {
	if p.literal.Len() > 0 {
		p.f.items = append(p.f.items, item{literal: p.literal.String()})
		p.literal.Reset()
	}
}
