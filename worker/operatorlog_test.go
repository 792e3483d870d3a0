package worker

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
)

func TestOperatorLog(t *testing.T) {
	var out strings.Builder
	log := slog.New(newOperatorLog(&out, 7))
	log.Warn("maxconn reached", "service", "socks@127.0.0.1:1080", "error", errors.New("no \"room\""))
	log.Info("access log works again")
	log.Debug("not shown")
	want := "3proxyd: worker pid 7: warning: maxconn reached service=socks@127.0.0.1:1080 error=\"no \\\"room\\\"\"\n" +
		"3proxyd: worker pid 7: access log works again\n"
	if out.String() != want {
		t.Errorf("%q", out.String())
	}
}
