package supervisor

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"3proxyd/config"
)

// logFile is an access log opened for the workers, which may not have the
// right to open it themselves.
type logFile struct {
	path string
	fd   int
}

// firstWithLog returns the first service of each log file.
func firstWithLog(cfg *config.Config) []*config.Service {
	var first []*config.Service
	seen := map[string]bool{}
	for i := range cfg.Services {
		s := &cfg.Services[i]
		if s.Log.Kind == config.LogFile && !seen[s.Log.Path] {
			seen[s.Log.Path] = true
			first = append(first, s)
		}
	}
	return first
}

// openLogs opens each log file of the configuration once.
func openLogs(cfg *config.Config) ([]logFile, []config.Diagnostic) {
	var logs []logFile
	var failed []config.Diagnostic
	for _, s := range firstWithLog(cfg) {
		fd, err := openLog(s.Log.Path)
		if err != nil {
			failed = append(failed, logDiagnostic(cfg, s, config.Error, err))
			continue
		}
		logs = append(logs, logFile{s.Log.Path, fd})
	}
	return logs, failed
}

// logDiagnostic is about the log of a service, at its log command.
func logDiagnostic(cfg *config.Config, s *config.Service, severity config.Severity, err error) config.Diagnostic {
	pos, ok := cfg.Places.Logs[s.Log.Path]
	if !ok {
		pos = s.Pos
	}
	return config.Diagnostic{Pos: pos, Severity: severity, Text: fmt.Sprintf("log: %v", err)}
}

// CheckLogs warns of log files that could not be opened, without making any.
func CheckLogs(cfg *config.Config) []config.Diagnostic { return checkLogs(cfg, config.Warning) }

func checkLogs(cfg *config.Config, severity config.Severity) []config.Diagnostic {
	var found []config.Diagnostic
	for _, s := range firstWithLog(cfg) {
		if err := checkLog(s.Log.Path); err != nil {
			found = append(found, logDiagnostic(cfg, s, severity, err))
		}
	}
	return found
}

// checkLog says why a log could not be opened. A FIFO is not opened: its reader
// would take that for the end.
func checkLog(path string) error {
	var st unix.Stat_t
	err := unix.Stat(path, &st)
	if err == unix.ENOENT {
		dir := filepath.Dir(path)
		if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
			return fmt.Errorf("%s cannot be made in %s: %w", path, dir, err)
		}
		return nil
	}
	if err == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO {
		err = unix.Access(path, unix.W_OK)
	} else if err == nil {
		var fd int
		if fd, err = unix.Open(path, unix.O_WRONLY|unix.O_APPEND|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NONBLOCK, 0); err == nil {
			_ = unix.Close(fd)
		}
	}
	if err != nil {
		return fmt.Errorf("%s cannot be written: %w", path, err)
	}
	return nil
}

// openLog opens a log for appending. A FIFO nobody reads is an error instead
// of a wait.
func openLog(path string) (int, error) {
	flags := unix.O_WRONLY | unix.O_APPEND | unix.O_CREAT | unix.O_CLOEXEC | unix.O_NOCTTY | unix.O_NONBLOCK
	fd, err := unix.Open(path, flags, 0o640)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", path, err)
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("open %s: %w", path, err)
	}
	return fd, nil
}

func closeLogs(logs []logFile) {
	for _, l := range logs {
		_ = unix.Close(l.fd)
	}
}

// serviceError is an error at a service's line.
func serviceError(s *config.Service, text string) config.Diagnostic {
	return config.Diagnostic{Pos: s.Pos, Severity: config.Error, Text: string(s.Kind) + ": " + text}
}

func serviceWarning(s *config.Service, text string) config.Diagnostic {
	return config.Diagnostic{Pos: s.Pos, Severity: config.Warning, Text: string(s.Kind) + ": " + text}
}
