package worker

import (
	"os"

	"golang.org/x/sys/unix"

	"3proxyd/config"
)

// A session that moves is logged where it would have been logged: the target
// gets the descriptor of a log that it does not have.

// lendLog returns a duplicate of the descriptor of the service's log file, -1
// when there is none; it runs on the loop.
func (v *service) lendLog() int {
	if v.Log.Kind != config.LogFile || v.log == nil || v.log.out == nil {
		return -1
	}
	raw, err := v.log.file.SyscallConn()
	if err != nil {
		return -1
	}
	dup := -1
	_ = raw.Control(func(fd uintptr) {
		if n, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0); err == nil {
			dup = n
		}
	})
	return dup
}

// borrowLog takes the descriptor, -1 for none, of a log that no service of the
// generation in force uses; the next reload closes it.
func (w *Worker) borrowLog(cfg *config.Service, fd int) {
	key := stdoutLog
	if cfg.Log.Kind == config.LogFile {
		key = cfg.Log.Path
	}
	if f := w.logs[key]; f != nil && f.out != nil || cfg.Log.Kind == config.LogFile && fd < 0 {
		if fd >= 0 {
			unix.Close(fd)
		}
		return
	}
	f := &logFile{w: w, path: key}
	switch cfg.Log.Kind {
	case config.LogFile:
		f.replaceWriter(os.NewFile(uintptr(fd), key))
	case config.LogStdout:
		f.replaceWriter(dupStdout())
	default:
		return
	}
	w.logs[key] = f
}
