package peer

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Bounds of what is read to find a version, in bytes.
const (
	maxVersion = 80
	maxBinary  = 64 << 20
)

// VersionOf returns the version of the binary at path; "" if it cannot be told.
func (p *Peer) VersionOf(path string) string {
	var text string
	switch {
	case len(p.Version) > 0:
		text = ask(path, p.Version)
	case p.VersionIn != nil:
		text = contents(path)
	}
	if p.VersionIn != nil {
		text = p.VersionIn.FindString(text)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(line[:min(len(line), maxVersion)])
}

// ask returns what the binary prints. Some print it and exit with an error.
func ask(path string, args []string) string {
	cmd := exec.Command(path, args...)
	cmd.WaitDelay = time.Second
	timer := time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	out, _ := cmd.CombinedOutput()
	return string(out)
}

// contents returns the binary, "" if it is too large or cannot be read.
func contents(path string) string {
	st, err := os.Stat(path)
	if err != nil || st.Size() > maxBinary {
		return ""
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(text)
}

// Usable tells whether the binary at path was built with what the peer needs.
func (p *Peer) Usable(path string) error {
	if p.Needs != "" && !strings.Contains(contents(path), p.Needs) {
		return fmt.Errorf("%s: built without what %s needs (%q)", path, p.Name, p.Needs)
	}
	return nil
}
