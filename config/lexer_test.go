package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// lexWords runs one line through the lexer and returns "line:column text" of
// each word.
func lexWords(text string, files map[string]string) ([]string, []Diagnostic) {
	l := newLoader(testFile, fakeFiles(files))
	x := lexer{l: l, file: testFile, src: []byte(text), line: 1}
	x.run()
	var out []string
	for _, w := range x.words {
		place := strings.TrimPrefix(w.pos.String(), testFile+":")
		out = append(out, place+" "+w.text)
	}
	return out, l.diags.sorted()
}

func TestLexer(t *testing.T) {
	files := map[string]string{
		"/etc/list":      "one\r\n two \"th ree\"\n$four\n# five",
		"/etc/a b":       "spaced",
		"/etc/glue":      "rest,of list",
		"/other/x":       "abs",
		"/etc/empty":     " \n",
		"/etc/badquote":  "ok\n \"open",
		"/etc/nul":       "a\n b\x00",
		"/etc/notutf8":   "\xff",
		"/etc/sub/inner": "inner",
	}
	cases := []struct {
		text string
		want []string
		errs []string
	}{
		{"a b\tc", []string{"1:1 a", "1:3 b", "1:5 c"}, nil},
		{"a  b \r", []string{"1:1 a", "1:4 b"}, nil},
		{`"a b" c`, []string{"1:1 a b", "1:7 c"}, nil},
		{`a"b c"d`, []string{"1:1 ab cd"}, nil},
		{`"say ""hi"""`, []string{`1:1 say "hi"`}, nil},
		{`""`, []string{"1:1 "}, nil},
		{`x "" y`, []string{"1:1 x", "1:3 ", "1:6 y"}, nil},
		{`"""" z`, []string{`1:1 "`, "1:6 z"}, nil},
		{`a # b`, []string{"1:1 a", "1:3 #", "1:5 b"}, nil},
		{`"$list" x`, []string{"1:1 $list", "1:9 x"}, nil},
		{`x"$"y`, []string{"1:1 x$y"}, nil},
		{`u $list v`, []string{"1:1 u", "/etc/list:1:1 one", "/etc/list:2:2 two", "/etc/list:2:6 th ree",
			"/etc/list:3:1 $four", "/etc/list:4:1 #", "/etc/list:4:3 five", "1:9 v"}, nil},
		{`$"a b" x`, []string{"/etc/a b:1:1 spaced", "1:8 x"}, nil},
		{`$"/other/x"`, []string{"/other/x:1:1 abs"}, nil},
		{`$/other/x`, []string{"/other/x:1:1 abs"}, nil},
		{`$sub/inner`, []string{"/etc/sub/inner:1:1 inner"}, nil},
		{`p:$glue`, []string{"1:1 p:rest,of", "/etc/glue:1:9 list"}, nil},
		{`"open`, nil, []string{`1:1: error: this quote is not closed before the end of the line (a quote inside quotes is written "")`}},
		{`a b"c`, []string{"1:1 a"}, []string{`1:4: error: this quote is not closed before the end of the line (a quote inside quotes is written "")`}},
		{`x $badquote`, []string{"1:1 x"}, []string{`/etc/badquote:2:2: error: this quote is not closed before the end of the line (a quote inside quotes is written "")`}},
		{`$empty`, nil, []string{`1:1: error: the file "/etc/empty" holds no words`}},
		{`$nul`, nil, []string{`/etc/nul:2:3: error: NUL byte; this is not a text file`}},
		{`$notutf8`, nil, []string{`/etc/notutf8:1:1: error: this byte is not UTF-8; save the file as UTF-8`}},
		{"ab\xffc", nil, []string{`1:3: error: this byte is not UTF-8; save the file as UTF-8`}},
		{`a $ b`, []string{"1:1 a"}, []string{`1:3: error: a file name is expected after $; put a $ that stands for itself in double quotes`}},
		{`$none`, nil, []string{`1:1: error: cannot read "none": file does not exist (an unquoted $ inserts the words of a file; put the word in double quotes if the $ belongs to it, as in a password)`}},
		{`bob:CR:$1$salt$hash`, nil, []string{`1:8: error: cannot read the file named after this $: file does not exist (an unquoted $ inserts the words of a file; put the word in double quotes if the $ belongs to it, as in a password)`}},
	}
	for _, c := range cases {
		got, diags := lexWords(c.text, files)
		if c.errs == nil && !slices.Equal(got, c.want) {
			t.Errorf("%q: got %q, want %q", c.text, got, c.want)
		}
		if !slices.Equal(lines(diags), c.errs) {
			t.Errorf("%q: got errors %q, want %q", c.text, lines(diags), c.errs)
		}
	}
}

func TestWordPositions(t *testing.T) {
	l := newLoader(testFile, fakeFiles(map[string]string{"/etc/g": "\n", "/etc/h": "xy"}))
	x := lexer{l: l, file: testFile, src: []byte(`  a"b ""c"d$h`), line: 7}
	if !x.run() || len(x.words) != 1 {
		t.Fatalf("words %v, errors %v", x.words, l.diags.sorted())
	}
	w := x.words[0]
	if w.text != `ab "cdxy` {
		t.Fatalf("text %q", w.text)
	}
	want := []string{"t.cfg:7:3", "t.cfg:7:5", "t.cfg:7:6", "t.cfg:7:8", "t.cfg:7:9", "t.cfg:7:11", "h:1:1", "h:1:2"}
	for i, place := range want {
		if got := w.at(i).String(); got != "/etc/"+place {
			t.Errorf("at(%d) = %s, want /etc/%s", i, got, place)
		}
	}
	tail := w.from(3)
	if tail.text != `"cdxy` || tail.at(3) != w.at(6) {
		t.Errorf("from(3) = %q with byte 3 at %s", tail.text, tail.at(3))
	}
	for i, part := range w.split(func(c byte) bool { return c == 'c' }) {
		if want := []int{0, 5}[i]; part.pos != w.at(want) {
			t.Errorf("part %d is at %s, want %s", i, part.pos, w.at(want))
		}
	}
}

func TestLines(t *testing.T) {
	text := "\ufefflog\r\n# comment \x01\n proxy in a comment\n\n\tsocks\n\"proxy\"   -p8080\r\nend\nbroken \"\n"
	c, diags := loadText(text, nil)
	wantLines(t, diags[:1], "3:2: warning: proxy: a line that begins with a blank is a comment")
	if len(diags) != 2 || c == nil {
		t.Fatalf("diagnostics: %v", lines(diags))
	}
	if len(c.Services) != 1 || c.Services[0].ID != "proxy@0.0.0.0:8080" || c.Services[0].Pos != (Pos{testFile, 6, 1}) {
		t.Errorf("services: %+v", c.Services)
	}
	_, diags = loadText("proxy -i127.0.0.1\nlog\x00\n", nil)
	wantLines(t, diags, "2:4: error: NUL byte; this is not a text file")
}

func TestInclude(t *testing.T) {
	files := map[string]string{
		"/etc/sub/a.cfg": "maxconn x\ninclude b.cfg\nmaxconn y\nend\nmaxconn hidden",
		"/etc/sub/b.cfg": "\nbacklog $../n\n",
		"/etc/n":         "\n  zz",
		"/etc/loop":      "log\ninclude loop2",
		"/etc/loop2":     "include \"/etc/loop\"",
	}
	_, diags := loadText("include sub/a.cfg\nproxy -pno\ninclude missing\n", files)
	wantLines(t, diags,
		`/etc/sub/a.cfg:1:9: error: maxconn: "x": expected a number from 1 to 10000000`,
		`/etc/n:2:3: error: backlog: "zz": expected a number from 0 to 1000000`,
		`/etc/sub/a.cfg:3:9: error: maxconn: "y": expected a number from 1 to 10000000`,
		`2:9: error: proxy: -p: "no": expected a port from 1 to 65535`,
		`3:9: error: include: cannot read "missing": file does not exist`,
	)
	_, diags = loadText("include loop\nproxy -i127.0.0.1\n", files)
	wantLines(t, diags, `/etc/loop2:1:9: error: include: these files include each other without end: "/etc/loop" -> "/etc/loop2" -> "/etc/loop"`)

	c, diags := loadText("include ok\n", map[string]string{"/etc/ok": "proxy -i127.0.0.1"})
	if c == nil || !slices.Equal(c.Files, []string{testFile, "/etc/ok"}) {
		t.Errorf("files %v, %v", c, lines(diags))
	}
}

// TestIncludeLink expects a cycle through symbolic links at the first return.
func TestIncludeLink(t *testing.T) {
	dir := t.TempDir()
	main, link := filepath.Join(dir, "main"), filepath.Join(dir, "link")
	if err := os.WriteFile(main, []byte("include link\nproxy -i127.0.0.1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("main", link); err != nil {
		t.Fatal(err)
	}
	_, diags := Load(main)
	wantLines(t, diags, fmt.Sprintf("%s:1:9: error: include: these files include each other without end: %q -> %q", main, main, link))
	if _, diags := Load(link); len(diags) != 1 {
		t.Errorf("from the link: %v", lines(diags))
	}
}

func TestIncludeLimits(t *testing.T) {
	files := map[string]string{}
	for i := range maxNesting + 2 {
		files[fmt.Sprintf("/etc/%d", i)] = fmt.Sprintf("include %d\n", i+1)
	}
	_, diags := loadText("proxy -i127.0.0.1\ninclude 0\n", files)
	wantLines(t, diags, fmt.Sprintf("/etc/%d:1:9: error: include: included files are nested more than 16 deep", maxNesting-1))

	// Each file runs the next one many times: without a total limit this
	// would not end.
	for i := range maxNesting {
		files[fmt.Sprintf("/etc/%d", i)] = strings.Repeat(fmt.Sprintf("include %d\n", i+1), 50)
	}
	_, diags = loadText("proxy -i127.0.0.1\ninclude 0\n", files)
	if n := len(diags); n != maxErrors+1 || !strings.Contains(diags[0].Text, "16 deep") || diags[n-1].Text != "too many errors" {
		t.Errorf("%d diagnostics: %v", n, lines(diags[:1]))
	}
	files["/etc/14"] = "log\n"
	_, diags = loadText("proxy -i127.0.0.1\ninclude 0\n", files)
	if len(diags) == 0 || !strings.Contains(diags[0].Text, "more than 4096 files were read") {
		t.Errorf("diagnostics: %v", lines(diags))
	}
}

func TestErrorLimit(t *testing.T) {
	_, diags := loadText(strings.Repeat("nonsense\n", 1000), nil)
	if len(diags) != maxErrors+1 || diags[maxErrors].Text != "too many errors" || diags[maxErrors].Pos.Line != maxErrors+1 {
		t.Errorf("%d diagnostics, the last %v", len(diags), diags[len(diags)-1])
	}
}

func TestWordLimits(t *testing.T) {
	long := strings.Repeat("x", maxWordLen+1)
	_, diags := loadText("proxy -i127.0.0.1\nlog "+long+"\n", nil)
	wantLines(t, diags, "2:5: error: this word has 1048577 bytes; at most 1048576 are allowed")
	_, diags = loadText("proxy -i127.0.0.1\n"+strings.Repeat("users "+strings.Repeat("a ", 500)+"\n", 2500), nil)
	if last := diags[len(diags)-1].Text; last != "too many errors" {
		t.Errorf("last: %s", last)
	}
	_, diags = loadText("proxy -i127.0.0.1\nusers "+strings.Repeat("a ", maxWords), nil)
	if got := diags[0].Text; got != "the configuration has more than 1048576 words" {
		t.Errorf("got %s", got)
	}
}
