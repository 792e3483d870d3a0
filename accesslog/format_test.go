package accesslog

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// defaultFormat is that of 3proxy.
const defaultFormat = "G%y%m%d%H%M%S.%. %p %E %U %C:%c %R:%r %O %I %h %T"

func testRecord() *Record {
	end := time.Date(2026, time.March, 4, 5, 6, 7, 89e6, time.UTC)
	return &Record{
		Start:       end.Add(-2500 * time.Millisecond).UnixNano(),
		End:         end.UnixNano(),
		Service:     "PROXY",
		ServicePort: 3128,
		User:        "ann",
		Host:        "www.example.com",
		Client:      netip.MustParseAddrPort("192.0.2.10:40000"),
		Server:      netip.MustParseAddrPort("[2001:db8::1]:443"),
		Internal:    netip.MustParseAddr("192.0.2.1"),
		External:    netip.MustParseAddr("::ffff:198.51.100.7"),
		Requested:   netip.MustParseAddrPort("203.0.113.9:8443"),
		Code:        13,
		BytesIn:     5_000,
		BytesOut:    1_250,
		Hops:        2,
		Text:        []byte("GET http://www.example.com/ HTTP/1.1"),
	}
}

func TestLetters(t *testing.T) {
	tests := []struct{ format, want string }{
		{"G%y", "26"}, {"G%Y", "2026"}, {"G%m", "03"}, {"G%o", "Mar"}, {"G%d", "04"},
		{"G%H", "05"}, {"G%M", "06"}, {"G%S", "07"}, {"G%t", "1772600767"}, {"G%.", "089"},
		{"G%z", "+0000"}, {"G%D", "2500"}, {"G%b", "500"}, {"G%B", "2000"},
		{"G%U", "ann"}, {"G%N", "PROXY"}, {"G%p", "3128"}, {"G%E", "00013"},
		{"G%C", "192.0.2.10"}, {"G%c", "40000"}, {"G%R", "2001:db8::1"}, {"G%r", "443"},
		{"G%i", "192.0.2.1"}, {"G%e", "198.51.100.7"}, {"G%Q", "203.0.113.9"}, {"G%q", "8443"},
		{"G%n", "www.example.com"}, {"G%I", "5000"}, {"G%O", "1250"}, {"G%h", "2"},
		{"G%T", "GET http://www.example.com/ HTTP/1.1"},
		{"G%1-2T", "GET http://www.example.com/"}, {"G%2-2T", "http://www.example.com/"},
		{"G%1-1T", "GET"}, {"G%3-9T", "HTTP/1.1"}, {"G%4-9T", ""}, {"G%1-9999T", "GET http://www.example.com/ HTTP/1.1"},
		{"G%%", "%"}, {"G", ""}, {"G plain \"text\", %%U", " plain \"text\", %U"},
		{"-\"+_G%T", "GET http://www.example.com/ HTTP/1.1"},
		{"-/: +_G%T", "GET_http___www.example.com__HTTP_1.1"},
		{"-/+ G[%2-2T]", "[http:  www.example.com ]"},
		{"-+_G%U", "ann"},
		{"-a+bG%U a", "bnn a"},
		{"-,%+ G%U", "ann"},
		{defaultFormat, "260304050607.089 3128 00013 ann 192.0.2.10:40000 2001:db8::1:443 1250 5000 2 GET http://www.example.com/ HTTP/1.1"},
	}
	for _, tt := range tests {
		f, err := Compile(tt.format)
		if err != nil {
			t.Errorf("Compile(%q): %v", tt.format, err)
			continue
		}
		if got := string(f.Append(nil, testRecord())); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.format, got, tt.want)
		}
	}
}

func TestEmptyRecord(t *testing.T) {
	f, err := Compile("G%Y-%m-%d %t.%. %D %b %B %U %N %p %E %C:%c %R:%r %i %e %Q:%q %n %I %O %h %T|%1-2T|")
	if err != nil {
		t.Fatal(err)
	}
	want := "1970-01-01 0000000000.000 0 0 0 - - 0 00000 0.0.0.0:0 0.0.0.0:0 0.0.0.0 0.0.0.0 0.0.0.0:0 [0.0.0.0] 0 0 0 ||"
	if got := string(f.Append(nil, &Record{})); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestZone(t *testing.T) {
	tests := []struct {
		offset int
		want   string
	}{
		{0, "05 +0000"}, {5*3600 + 45*60, "10 +0545"}, {-3*3600 - 30*60, "01 -0330"}, {14 * 3600, "19 +1400"},
	}
	for _, tt := range tests {
		f, err := Compile("L%H %z")
		if err != nil {
			t.Fatal(err)
		}
		if f.loc != time.Local {
			t.Error("L is not the local time")
		}
		f.loc = time.FixedZone("test", tt.offset)
		if got := string(f.Append(nil, testRecord())); got != tt.want {
			t.Errorf("offset %d: %q, want %q", tt.offset, got, tt.want)
		}
	}
}

func TestHostileInput(t *testing.T) {
	tests := []struct{ format, in, want string }{
		{"G%U", "a b", "a b"},
		{"G%U", `a"b'c\`, `a"b'c\`},
		{"-\"'\\ +.G%U", `a"b'c\ d`, `a.b.c..d`},
		{"G%U", "a\r\nb\x00c\x1b[31m\x7f\t", "a__b_c_[31m__"},
		{"- + G%U", "a\nb", "a b"},
		{"G%U", "Jos\u00e9 \u0416 \u4e16", "Jos\u00e9 \u0416 \u4e16"},
		{"G%U", "bad\xff\xc3(", "bad__("},
		{"G%U", "cut\xe4\xb8", "cut__"},
		{"G%U", "nel\u0085ls\u2028rlo\u202ez", "nel__ls___rlo___z"},
		{"-\u00e9+eG%U", "\u00e9\u00e8", "ee\u00e8"},
		{"G%U", "\ufffd", "\ufffd"},
		{"G%U", strings.Repeat("x", 2000), strings.Repeat("x", maxNameField)},
	}
	for _, tt := range tests {
		f, err := Compile(tt.format)
		if err != nil {
			t.Errorf("Compile(%q): %v", tt.format, err)
			continue
		}
		for _, letter := range []string{"%U", "%n", "%T"} {
			if letter == "%T" && len(tt.in) > maxNameField {
				continue
			}
			g := *f
			g.items = []item{{letter: letter[1], to: maxTextField}}
			r := &Record{User: tt.in, Host: tt.in, Text: []byte(tt.in)}
			if got := string(g.Append(nil, r)); got != tt.want {
				t.Errorf("%q %s of %q: %q, want %q", tt.format, letter, tt.in, got, tt.want)
			}
		}
	}
}

func TestTextFields(t *testing.T) {
	tests := []struct{ format, text, want string }{
		{"G%1-2T", "a  b   c", "a b"},
		{"G%2-3T", "a \t b\t\tc d", "b_c"},
		{"G%2-3T", " a b", "a b"},
		{"G%1-1T", " a b", ""},
		{"G%2-5T", "a b ", "b "},
		{"G%2-2T", "a b ", "b"},
		{"G%1-2T", "", ""},
		{"- +_G%1-3T", "a b c d", "a_b_c"},
		{"G%2-2T", "GET http://x/\u00e9\nHTTP/1.0", "http://x/\u00e9"},
	}
	for _, tt := range tests {
		f, err := Compile(tt.format)
		if err != nil {
			t.Errorf("Compile(%q): %v", tt.format, err)
			continue
		}
		if got := string(f.Append(nil, &Record{Text: []byte(tt.text)})); got != tt.want {
			t.Errorf("%q of %q: %q, want %q", tt.format, tt.text, got, tt.want)
		}
	}
}

func TestHostField(t *testing.T) {
	f, err := Compile("G%n")
	if err != nil {
		t.Fatal(err)
	}
	r := testRecord()
	for host, want := range map[string]string{
		"":        "[203.0.113.9]",
		"::1":     "[203.0.113.9]",
		"a.test":  "a.test",
		"1.2.3.4": "1.2.3.4",
	} {
		r.Host = host
		if got := string(f.Append(nil, r)); got != want {
			t.Errorf("host %q: %q, want %q", host, got, want)
		}
	}
}

func TestRates(t *testing.T) {
	f, err := Compile("G%D %b %B")
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		r    Record
		want string
	}{
		{Record{Start: 5, End: 5}, "0 0 0"},
		{Record{Start: 2e9, End: 1e9, BytesIn: 1}, "0 0 0"},
		{Record{Start: 1, End: 3e6, BytesOut: 3, BytesIn: 1<<64 - 1}, "3 1000 18446744073709551615"},
		{Record{Start: 1999999, End: 2000000, BytesOut: 7}, "1 7000 0"},
	}
	for _, tt := range tests {
		if got := string(f.Append(nil, &tt.r)); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.r, got, tt.want)
		}
	}
}

func TestCompileErrors(t *testing.T) {
	tests := []struct {
		format string
		offset int
	}{
		{"", 0}, {"%U", 0}, {"x%U", 0}, {"g%U", 0}, {"-abc", 0}, {"-abc+", 5}, {"-abc+_", 6}, {"-abc+_x", 6},
		{"-abc+\nG", 5}, {"-abc+\u00e9G", 5}, {"-++_+G%U", 3}, {"G%", 1}, {"G%U%", 3}, {"G%U %x", 4}, {"G%L", 1}, {"G%\u00e9", 1},
		{"G%1T", 1}, {"G%1-T", 1}, {"G%1-2", 1}, {"G%1-2U", 1}, {"G%0-2T", 1}, {"G%3-2T", 1}, {"G%1-10000T", 1},
		{"G%99999999999999999999-1T", 1}, {"Gab\ncd", 3}, {"G\x7f", 1},
	}
	for _, tt := range tests {
		_, err := Compile(tt.format)
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("Compile(%q): %v, want an *Error", tt.format, err)
			continue
		}
		if e.Offset != tt.offset {
			t.Errorf("Compile(%q): %v, want offset %d", tt.format, e, tt.offset)
		}
	}
}

func TestAppendAllocates(t *testing.T) {
	f, err := Compile("-\"\u00e9+_L%y%Y%m%o%d%H%M%S%t%.%z%D%b%B%U%N%p%E%C%c%R%r%i%e%Q%q%n%I%O%h%T%1-2T")
	if err != nil {
		t.Fatal(err)
	}
	r := testRecord()
	r.User, r.Text = "Jos\u00e9\xff", []byte("GET \u00e9\xff\u4e16 x")
	dst := make([]byte, 0, 4096)
	if n := testing.AllocsPerRun(100, func() { f.Append(dst, r) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzFormat(f *testing.F) {
	f.Add(defaultFormat, "ann", "example.com", "GET / HTTP/1.1")
	f.Add("-\"+_L%U%n%T", "a\r\nb", "\xff", "\u2028")
	f.Add("- \u00e9++G%1-2T%%", "", "::1", " a  b c")
	f.Add("G%2-9999T%", "\x00", "h", "\t")
	f.Fuzz(func(t *testing.T, format, user, host, text string) {
		compiled, err := Compile(format)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Offset < 0 || e.Offset > len(format) {
				t.Fatalf("Compile(%q): %v", format, err)
			}
			return
		}
		for i := range compiled.items {
			// What the operator writes is not the client's.
			if compiled.items[i].letter == 0 {
				compiled.items[i].literal = "."
			}
		}
		r := testRecord()
		r.User, r.Host, r.Text = user, host, []byte(text)
		line := compiled.Append(nil, r)
		if !utf8.Valid(line) {
			t.Fatalf("line is not UTF-8: %q", line)
		}
		for _, c := range line {
			if c < ' ' || c == 0x7f {
				t.Fatalf("control character in %q", line)
			}
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	f, err := Compile(defaultFormat)
	if err != nil {
		b.Fatal(err)
	}
	r := testRecord()
	dst := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		f.Append(dst, r)
	}
}
