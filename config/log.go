package config

import (
	"errors"
	"slices"
	"strings"

	"3proxyd/accesslog"
)

func runLog(l *loader, c call) {
	if len(c.args) == 0 {
		l.st.log = Log{Kind: LogStdout}
		return
	}
	target := c.args[0]
	switch {
	case strings.HasPrefix(target.text, "@"):
		l.errorf(target.pos, "log: %s: syslog: %s", show(target.text), notYet)
	case strings.HasPrefix(target.text, "&"):
		l.errorf(target.pos, "log: not supported: a log that begins with & goes to an ODBC database")
	case target.text == "radius":
		l.errorf(target.pos, "log: radius: %s", notYet)
	case strings.Contains(target.text, "%"):
		l.errorf(target.pos, "log: %s: a file name made from the date (%%): %s", show(target.text), notYet)
	case len(c.args) > 1:
		l.refuseRotation(c.args[1])
	case target.text == "/dev/null":
		l.st.log = Log{Kind: LogNone}
	case target.text == "/dev/stdout":
		l.st.log = Log{Kind: LogStdout}
	case l.checkPath("log", target):
		l.st.log = Log{Kind: LogFile, Path: target.text}
		l.logPos[target.text] = target.pos
	}
}

var rotationLetters = []string{"c", "H", "D", "W", "M", "Y"}

func (l *loader) refuseRotation(w word) {
	if slices.Contains(rotationLetters, w.text) {
		l.errorf(w.pos, "log: rotation (%s): %s", w.text, notYet)
		return
	}
	l.expected("log", w, "one of the rotation letters c, H, D, W, M, Y")
}

func runLogFormat(l *loader, c call) {
	w := c.args[0]
	if offset, err := checkLogFormat(w.text); err != nil {
		l.errorf(w.at(offset), "logformat: %v", err)
		return
	}
	l.st.logFormat = w.text
}

// checkLogFormat returns the offset and the text of what is wrong with a
// format of the access log.
func checkLogFormat(format string) (offset int, err error) {
	_, err = accesslog.Compile(format)
	var bad *accesslog.Error
	if errors.As(err, &bad) {
		return min(bad.Offset, len(format)), errors.New(bad.Text)
	}
	return 0, err
}
