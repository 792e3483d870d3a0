package config

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// FuzzLoadBytes runs any text, with any text in the one file it can name. No
// file of the machine is read.
func FuzzLoadBytes(f *testing.F) {
	f.Add([]byte(everything), []byte("x"))
	f.Add(builtin, []byte(""))
	f.Add([]byte("include f\nproxy $f\nallow * $f\nusers a:CL:$\"f\"\n"), []byte("\"a b\" c\n d\"e\"f\ninclude f\n"))
	f.Add([]byte("\ufeff\"proxy\" -s7:1,2,0 -p1\r\nnope\n\"unclosed"), []byte("end\n$f \x00"))
	f.Add([]byte("allow a,b 1.2.3.4-5.6.7.8,::/0 *x*,y 1-2 HTTP 0-7 00:00:00-24:00:00\nsocks -ocSO_MARK=1+TCP_NODELAY"), []byte{0xff})
	f.Add([]byte("logformat \"-,%+ L%1-2T\"\"%q\"\nlogformat L%"), []byte(" "))
	f.Fuzz(func(t *testing.T, data, file []byte) {
		texts := map[string][]byte{testFile: data, "/etc/f": file}
		env := fakeFiles(nil)
		env.open = func(path string) ([]byte, error) {
			if text, ok := texts[path]; ok && path != testFile {
				return text, nil
			}
			return nil, fs.ErrNotExist
		}
		if data == nil {
			data = []byte{}
		}
		c, diags := load(testFile, data, env)
		failed := false
		for _, d := range diags {
			failed = failed || d.Severity == Error
			checkPos(t, d, texts)
		}
		if failed != (c == nil) {
			t.Fatalf("configuration %v with %v", c, diags)
		}
		if c != nil {
			checkConfig(t, c)
		}
	})
}

// checkPos checks that a diagnostic is at a byte of its file, or at the end of
// a line.
func checkPos(t *testing.T, d Diagnostic, texts map[string][]byte) {
	t.Helper()
	text, ok := texts[d.Pos.File]
	list := strings.Split(string(text), "\n")
	if !ok || d.Pos.Line < 1 || d.Pos.Line > len(list) {
		t.Fatalf("%v: no such line", d)
	}
	if d.Pos.Column < 1 || d.Pos.Column > len(list[d.Pos.Line-1])+1 {
		t.Fatalf("%v: no such column", d)
	}
	if d.Text == "" || strings.ContainsAny(d.Text, "\n\x00") {
		t.Fatalf("text %q", d.Text)
	}
}

func checkConfig(t *testing.T, c *Config) {
	t.Helper()
	if len(c.Services) == 0 {
		t.Fatal("no service")
	}
	ids := map[string]bool{}
	for _, s := range c.Services {
		if ids[s.ID] || s.ACL < -1 || s.ACL >= len(c.ACLs) || len(s.Auth) == 0 {
			t.Fatalf("service %+v", s)
		}
		ids[s.ID] = true
	}
	data, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var back Config
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	want := *c
	want.Places = Places{}
	if !reflect.DeepEqual(want, back) {
		t.Fatalf("over JSON:\n%+v\nbecomes\n%+v", *c, back)
	}
}

// TestOpenFile checks that a FIFO without a writer does not hang the load.
func TestOpenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	if err := mkfifo(path); err != nil {
		t.Skip(err)
	}
	data, err := openFile(path)
	if err != nil || len(data) != 0 {
		t.Errorf("%q, %v", data, err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.WriteString("proxy\n"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	data, err = openFile(filepath.Join("/proc/self/fd", itoa(int(r.Fd()))))
	if err != nil || string(data) != "proxy\n" {
		t.Errorf("pipe: %q, %v", data, err)
	}
}
