package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"3proxyd/ipc"
)

func TestUpgradeArgs(t *testing.T) {
	line, err := parseArgs(strings.Fields("upgrade --binary bin/3proxyd --trial 1m --timeout 5"))
	if err != nil || !filepath.IsAbs(line.binary) || !strings.HasSuffix(line.binary, "/bin/3proxyd") ||
		line.trial == nil || *line.trial != 60 || line.timeout == nil || *line.timeout != 5 || line.waitTime() != waitUpgrade {
		t.Errorf("%+v, %v", line, err)
	}
	for _, text := range []string{
		"reload --binary x", "drain --trial 1", "status --timeout 1", "upgrade --worker 1",
		"upgrade --binary=", "upgrade --trial -1", "upgrade --timeout x",
	} {
		if line, err := parseArgs(strings.Fields(text)); err == nil {
			t.Errorf("%q: %+v", text, line)
		}
	}
}

func TestUpgradeStatus(t *testing.T) {
	var out strings.Builder
	s := &session{out: &out}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	s.upgradeStatus(&ipc.Status{
		Upgrade:     &ipc.UpgradeStatus{State: "trial", Binary: "/b", Version: "2", PID: 7, AgeSec: 3},
		LastUpgrade: &ipc.UpgradeOutcome{Time: at, Binary: "/b", Error: "why"},
		OldGenerations: []ipc.OldGeneration{{PID: 5, Version: "1", AgeSec: 60, LeftSec: 120, Sessions: 3,
			Workers: []ipc.WorkerStatus{{}, {}}}},
	})
	for _, want := range []string{
		"upgrade to /b (pid 7, version 2): trial for 3.0s",
		"last upgrade (2026-01-02 03:04:05, to /b) failed: why",
		"1               5    1m00s ago  2        3         2m00s",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, out.String())
		}
	}
}
