package worker

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// operatorLog writes the worker's messages for the operator in the form of the
// supervisor's: "3proxyd: worker pid N: warning: text key=value". Whoever reads
// them, the journal or a terminal, adds the time.
type operatorLog struct {
	out    io.Writer
	prefix string
}

func newOperatorLog(out io.Writer, pid int) operatorLog {
	return operatorLog{out, fmt.Sprintf("3proxyd: worker pid %d: ", pid)}
}

// Enabled leaves out what is for debugging.
func (operatorLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// Handle writes a line with one call, so that lines of several processes do not
// mix.
func (o operatorLog) Handle(_ context.Context, r slog.Record) error {
	var line strings.Builder
	line.WriteString(o.prefix)
	switch {
	case r.Level >= slog.LevelError:
		line.WriteString("error: ")
	case r.Level >= slog.LevelWarn:
		line.WriteString("warning: ")
	}
	line.WriteString(r.Message)
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&line, " %s=%s", a.Key, quoteIfNeeded(a.Value.String()))
		return true
	})
	line.WriteByte('\n')
	_, err := io.WriteString(o.out, line.String())
	return err
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
