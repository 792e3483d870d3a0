package worker

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"3proxyd/systemd"
)

// operatorLog writes the worker's messages for the operator in the form of the
// supervisor's: "3proxyd: worker pid N: warning: text key=value". Whoever reads
// them, the journal or a terminal, adds the time.
type operatorLog struct {
	out    io.Writer
	prefix string
	// journal says that the messages go to the journal, with their attributes
	// as fields.
	journal bool
}

func newOperatorLog(out io.Writer, pid int) operatorLog {
	f, isFile := out.(*os.File)
	return operatorLog{out, fmt.Sprintf("worker pid %d: ", pid), isFile && systemd.JournalAt(f)}
}

// Enabled leaves out what is for debugging.
func (operatorLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// Handle writes a line with one call, so that lines of several processes do not
// mix.
func (o operatorLog) Handle(_ context.Context, r slog.Record) error {
	var line strings.Builder
	line.WriteString(o.prefix)
	priority, fields := systemd.Info, map[string]string{"THREEPROXYD_PROCESS": "worker"}
	switch {
	case r.Level >= slog.LevelError:
		priority = systemd.Error
		line.WriteString("error: ")
	case r.Level >= slog.LevelWarn:
		priority = systemd.Warning
		line.WriteString("warning: ")
	}
	line.WriteString(r.Message)
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&line, " %s=%s", a.Key, quoteIfNeeded(a.Value.String()))
		fields["THREEPROXYD_"+fieldName(a.Key)] = a.Value.String()
		return true
	})
	if o.journal && systemd.Journal(line.String(), priority, fields) == nil {
		return nil
	}
	_, err := io.WriteString(o.out, "3proxyd: "+line.String()+"\n")
	return err
}

// fieldName makes the name of an attribute one of a field in the journal.
func fieldName(key string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, key)
}

func quoteIfNeeded(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == '"' || r == 0x7f }) {
		return fmt.Sprintf("%q", s)
	}
	return s
}

// WithAttrs and WithGroup are not used here.
func (o operatorLog) WithAttrs([]slog.Attr) slog.Handler { return o }

// WithGroup is not used here.
func (o operatorLog) WithGroup(string) slog.Handler { return o }
