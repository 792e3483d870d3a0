package supervisor

import (
	"errors"

	"3proxyd/config"
	"3proxyd/internal/sys"
)

// CheckEngine returns why workers cannot have the engine that cfg demands, or
// nil. What the engine auto finds is no error.
func CheckEngine(cfg *config.Config) *config.Diagnostic {
	return checkEngine(systemMachine(), cfg)
}

func checkEngine(m machine, cfg *config.Config) *config.Diagnostic {
	if cfg.Engine != "io_uring" {
		return nil
	}
	err := sys.ProbeUring()
	if err == nil && !m.uringPermitted(cfg) {
		err = errors.New("sysctl kernel.io_uring_disabled is 1: processes without privileges must be of the group kernel.io_uring_group")
	}
	if err == nil {
		return nil
	}
	return &config.Diagnostic{Pos: placeOf(cfg, "engine"), Severity: config.Error, Text: "engine io_uring: " + err.Error()}
}

// uringPermitted reports whether a worker may use io_uring after it has given
// up the privileges that the supervisor has.
func (m machine) uringPermitted(cfg *config.Config) bool {
	if cfg.SetUID == nil || cfg.SetUID.ID == 0 || m.numberOr("/proc/sys/kernel/io_uring_disabled", 0) != 1 {
		return true
	}
	group, ok := m.number("/proc/sys/kernel/io_uring_group")
	return ok && group >= 0 && cfg.SetGID != nil && cfg.SetGID.ID == group
}
