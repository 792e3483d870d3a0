package config

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// Limits of the lexer. maxWords is for the whole configuration.
const (
	maxWords   = 1 << 20
	maxWordLen = 1 << 20
)

// lexer splits text into words: one line of a configuration file, or, when
// nested is set, the whole of a file named by $path, whose line ends are
// blanks and in which $ has no meaning.
type lexer struct {
	l      *loader
	file   string
	src    []byte
	i      int
	line   int
	start  int // index in src of the first byte of the current line
	nested bool

	words  []word
	text   []byte // the word being read
	inWord bool
	next   int // index in src at which the word goes on without a break
	cur    word
}

func isBlank(c byte) bool {
	return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\v' || c == '\f'
}

func (x *lexer) pos(i int) Pos { return Pos{x.file, x.line, i - x.start + 1} }

// run reads all of src. It returns false when it has reported an error.
func (x *lexer) run() bool {
	for x.i < len(x.src) {
		if !x.step() {
			return false
		}
	}
	return x.endWord()
}

func (x *lexer) step() bool {
	c := x.src[x.i]
	switch {
	case isBlank(c):
		ok := x.endWord()
		x.i++
		if c == '\n' {
			x.line++
			x.start = x.i
		}
		return ok
	case c == '"':
		return x.quoted()
	case c == '$' && !x.nested:
		return x.insertFile()
	}
	x.put(x.i)
	x.i++
	return true
}

// begin starts a word at index i unless one is being read.
func (x *lexer) begin(i int) {
	if x.inWord {
		return
	}
	x.inWord = true
	x.cur = word{pos: x.pos(i)}
	x.next = i
}

// put appends the byte at index i to the word.
func (x *lexer) put(i int) {
	x.begin(i)
	if i != x.next {
		x.cur.breaks = append(x.cur.breaks, wordBreak{len(x.text), x.pos(i)})
	}
	x.text = append(x.text, x.src[i])
	x.next = i + 1
}

// quoted reads from an opening quote to the closing one.
func (x *lexer) quoted() bool {
	open := x.i
	x.begin(open)
	for x.i++; x.i < len(x.src) && x.src[x.i] != '\n'; x.i++ {
		if x.src[x.i] != '"' {
			x.put(x.i)
			continue
		}
		if x.i+1 < len(x.src) && x.src[x.i+1] == '"' {
			x.i++
			x.put(x.i)
			continue
		}
		x.i++
		return true
	}
	x.l.errorf(x.pos(open), "this quote is not closed before the end of the line (a quote inside quotes is written \"\")")
	return false
}

// endWord ends the word being read, if any.
func (x *lexer) endWord() bool {
	if !x.inWord {
		return true
	}
	x.inWord = false
	w := x.cur
	w.text = string(x.text)
	x.text = x.text[:0]
	if len(w.text) > maxWordLen {
		x.l.errorf(w.pos, "this word has %d bytes; at most %d are allowed", len(w.text), maxWordLen)
		return false
	}
	if !utf8.ValidString(w.text) {
		x.l.errorf(w.at(invalidUTF8(w.text)), "this byte is not UTF-8; save the file as UTF-8")
		return false
	}
	if !x.l.countWord(w.pos) {
		return false
	}
	x.words = append(x.words, w)
	return true
}

func invalidUTF8(s string) int {
	for i, r := range s {
		if r != utf8.RuneError {
			continue
		}
		if _, size := utf8.DecodeRuneInString(s[i:]); size == 1 {
			return i
		}
	}
	return 0
}

// insertFile replaces an unquoted $path by the words of that file. What stands
// before the $ becomes the beginning of the file's first word.
func (x *lexer) insertFile() bool {
	dollar := x.i
	path, ok := x.path()
	if !ok {
		return false
	}
	// What follows a ":" is most likely a password hash, which must not
	// show up in a message.
	secret := bytes.IndexByte(x.text, ':') >= 0 || bytes.IndexByte([]byte(path), '$') >= 0
	data, name, err := x.l.readFile(x.file, path)
	if err != nil {
		x.l.errorf(x.pos(dollar), "%s", insertError(path, secret, err))
		return false
	}
	if !x.l.checkText(name, data) {
		return false
	}
	before := len(x.words)
	in := lexer{
		l: x.l, file: name, src: data, line: 1, nested: true, words: x.words,
		text: x.text, inWord: x.inWord, next: -1, cur: x.cur,
	}
	if !in.run() {
		return false
	}
	x.words, x.text, x.inWord = in.words, in.text, false
	if len(x.words) == before {
		x.l.errorf(x.pos(dollar), "the file %s holds no words", show(name))
		return false
	}
	return true
}

func insertError(path string, secret bool, err error) string {
	const hint = "an unquoted $ inserts the words of a file; put the word in double quotes if the $ belongs to it, as in a password"
	if secret {
		return fmt.Sprintf("cannot read the file named after this $: %v (%s)", err, hint)
	}
	return fmt.Sprintf("cannot read %s: %v (%s)", show(path), err, hint)
}

// path reads the path after a $, up to an unquoted blank.
func (x *lexer) path() (string, bool) {
	name := lexer{l: x.l, file: x.file, src: x.src, i: x.i + 1, line: x.line, start: x.start}
	for name.i < len(name.src) && !isBlank(name.src[name.i]) {
		if name.src[name.i] != '"' {
			name.put(name.i)
			name.i++
			continue
		}
		if !name.quoted() {
			return "", false
		}
	}
	if len(name.text) == 0 {
		x.l.errorf(x.pos(x.i), "a file name is expected after $; put a $ that stands for itself in double quotes")
		return "", false
	}
	x.i = name.i
	return string(name.text), true
}
