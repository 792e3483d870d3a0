package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Bounds of the process commands.
const (
	maxWorkers      = 128
	maxCPU          = 4095
	maxDrainTimeout = 7 * 24 * 3600
	maxRebalance    = 24 * 3600
	maxUpgradeTrial = 600
	maxUpgradeOld   = 16
	maxID           = 1<<32 - 2
	maxPath         = 4095
)

func runWorkers(l *loader, c call) {
	w := c.args[0]
	if w.text == "auto" {
		l.cfg.Workers = 0
		return
	}
	n, ok := parseNumber(w.text, 1, maxWorkers)
	if !ok {
		l.expected("workers", w, fmt.Sprintf("auto or a number from 1 to %d", maxWorkers))
		return
	}
	l.cfg.Workers = n
}

func runCPUs(l *loader, c call) {
	var cpus []int
	for _, part := range c.args[0].split(isComma) {
		from, to, ok := parseSpan(part.text, 0, maxCPU)
		if !ok {
			l.expected("cpus", part, fmt.Sprintf("a CPU number from 0 to %d or a range such as 0-3", maxCPU))
			return
		}
		for n := from; n <= to; n++ {
			cpus = append(cpus, n)
		}
		if len(cpus) > 2*maxCPU {
			slices.Sort(cpus)
			cpus = slices.Compact(cpus)
		}
	}
	slices.Sort(cpus)
	l.cfg.CPUs = slices.Compact(cpus)
}

// parseSpan reads N or N-M with lo <= N <= M <= hi.
func parseSpan(s string, lo, hi int) (from, to int, ok bool) {
	a, b, isSpan := strings.Cut(s, "-")
	from, ok = parseNumber(a, lo, hi)
	if !ok || !isSpan {
		return from, from, ok
	}
	to, ok = parseNumber(b, from, hi)
	return from, to, ok
}

func runControl(l *loader, c call) {
	path := c.args[0]
	ctl := Control{Path: path.text}
	switch {
	case !strings.HasPrefix(path.text, "/"):
		l.expected("control", path, "an absolute path")
		return
	case len(path.text) > maxUnixPath:
		l.errorf(path.pos, "control: %s: a Unix socket path has at most %d bytes, this has %d", show(path.text), maxUnixPath, len(path.text))
		return
	}
	if len(c.args) > 1 {
		mode, err := strconv.ParseUint(c.args[1].text, 8, 32)
		if err != nil || mode == 0 || mode > 0o777 {
			l.expected("control", c.args[1], "a file mode in octal, such as 0660")
			return
		}
		ctl.Mode = uint32(mode)
	}
	if len(c.args) > 2 {
		if !l.checkOwner(c.args[2]) {
			return
		}
		ctl.Owner = c.args[2].text
	}
	l.cfg.Control = ctl
}

// checkOwner checks USER or USER:GROUP.
func (l *loader) checkOwner(w word) bool {
	user, group, hasGroup := strings.Cut(w.text, ":")
	if _, err := identity(user, l.env.uid, 0); err != nil {
		l.errorf(w.pos, "control: owner %s: %v", show(user), err)
		return false
	}
	if !hasGroup {
		return true
	}
	if _, err := identity(group, l.env.gid, 0); err != nil {
		l.errorf(w.at(len(user)+1), "control: group %s: %v", show(group), err)
		return false
	}
	return true
}

func runPIDFile(l *loader, c call) {
	if w := c.args[0]; l.checkPath("pidfile", w) {
		l.cfg.PIDFile = w.text
	}
}

// maxMonitored bounds the files that are looked at every second.
const maxMonitored = 64

func runMonitor(l *loader, c call) {
	w := c.args[0]
	if !l.checkPath("monitor", w) {
		return
	}
	path := resolvePath(c.name.pos.File, w.text)
	switch {
	case slices.Contains(l.cfg.Monitor, path):
		l.warnf(w.pos, "monitor: %s is named twice", show(path))
	case len(l.cfg.Monitor) == maxMonitored:
		l.errorf(c.name.pos, "monitor: at most %d files can be monitored", maxMonitored)
	default:
		l.cfg.Monitor = append(l.cfg.Monitor, path)
	}
}

// checkPath checks the path of a file that is written.
func (l *loader) checkPath(cmd string, w word) bool {
	switch {
	case w.text == "":
		l.errorf(w.pos, "%s: the path is empty", cmd)
	case len(w.text) > maxPath:
		l.errorf(w.pos, "%s: a path has at most %d bytes, this has %d", cmd, maxPath, len(w.text))
	case strings.HasSuffix(w.text, "/"):
		l.errorf(w.pos, "%s: %s: expected a file, not a directory", cmd, show(w.text))
	default:
		return true
	}
	return false
}

func runSetUID(l *loader, c call) {
	id, err := identity(c.args[0].text, l.env.uid, 1)
	if err != nil {
		l.errorf(c.args[0].pos, "setuid: %s: %v", show(c.args[0].text), err)
		return
	}
	l.cfg.SetUID = &id
}

func runSetGID(l *loader, c call) {
	id, err := identity(c.args[0].text, l.env.gid, 1)
	if err != nil {
		l.errorf(c.args[0].pos, "setgid: %s: %v", show(c.args[0].text), err)
		return
	}
	l.cfg.SetGID = &id
}

// identity reads a user or group: a number from lo on, or a name.
func identity(s string, lookup func(string) (int, error), lo int) (Identity, error) {
	if s == "" || len(s) > maxUserName {
		return Identity{}, fmt.Errorf("expected a name or a number")
	}
	if strings.Trim(s, "0123456789") == "" {
		id, ok := parseNumber(s, lo, maxID)
		if !ok {
			return Identity{}, fmt.Errorf("expected a name or a number from %d to %d", lo, maxID)
		}
		return Identity{s, id}, nil
	}
	id, err := lookup(s)
	if err != nil {
		return Identity{}, err
	}
	return Identity{s, id}, nil
}

func runDrainTimeout(l *loader, c call) {
	l.setNumber(c, "drain_timeout", &l.cfg.DrainTimeout, 0, maxDrainTimeout, "seconds")
}

func runRebalance(l *loader, c call) {
	l.setNumber(c, "rebalance", &l.cfg.Rebalance, 0, maxRebalance, "seconds")
}

func runUpgradeTrial(l *loader, c call) {
	l.setNumber(c, "upgrade_trial", &l.cfg.UpgradeTrial, 0, maxUpgradeTrial, "seconds")
}

func runUpgradeOld(l *loader, c call) {
	l.setNumber(c, "upgrade_old", &l.cfg.UpgradeOld, 1, maxUpgradeOld, "daemons")
}

// setNumber sets dst to the word of a command that takes a number from lo to
// hi; what is counted is said in the error.
func (l *loader) setNumber(c call, command string, dst *int, lo, hi int, what string) {
	n, ok := parseNumber(c.args[0].text, lo, hi)
	if !ok {
		l.expected(command, c.args[0], fmt.Sprintf("a number of %s from %d to %d", what, lo, hi))
		return
	}
	*dst = n
}
