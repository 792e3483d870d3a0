package config

import "sort"

// word is one word of a command, without its quotes.
type word struct {
	text string
	pos  Pos
	// breaks lists the offsets in text at which the source does not go on
	// where it was: after a quote that was dropped, or in another file.
	breaks []wordBreak
}

type wordBreak struct {
	offset int
	pos    Pos
}

// at returns the place in the source of the byte of w.text at offset.
func (w word) at(offset int) Pos {
	base := wordBreak{0, w.pos}
	i := sort.Search(len(w.breaks), func(i int) bool { return w.breaks[i].offset > offset })
	if i > 0 {
		base = w.breaks[i-1]
	}
	base.pos.Column += offset - base.offset
	return base.pos
}

// from returns the rest of w after the first n bytes.
func (w word) from(n int) word {
	return w.slice(n, len(w.text))
}

// slice returns the part of w between two offsets.
func (w word) slice(from, to int) word {
	part := word{text: w.text[from:to], pos: w.at(from)}
	for _, b := range w.breaks {
		if b.offset > from && b.offset < to {
			part.breaks = append(part.breaks, wordBreak{b.offset - from, b.pos})
		}
	}
	return part
}

// split cuts w at every byte for which sep is true.
func (w word) split(sep func(byte) bool) []word {
	var parts []word
	start := 0
	for i := range len(w.text) {
		if sep(w.text[i]) {
			parts = append(parts, w.slice(start, i))
			start = i + 1
		}
	}
	return append(parts, w.slice(start, len(w.text)))
}

func isComma(c byte) bool { return c == ',' }
