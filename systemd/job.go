package systemd

import (
	"context"
	"fmt"
	"os"

	"github.com/coreos/go-systemd/v22/dbus"
)

// Restarting says whether the manager is stopping this process's service only
// to start it again at once (systemctl restart), and leaves the other processes
// of the service alone meanwhile (KillMode=process, systemd.kill(5)). It asks
// over D-Bus (org.freedesktop.systemd1(5)); an error means that nobody knows.
func Restarting(ctx context.Context) (bool, error) {
	conn, err := dbus.NewSystemConnectionContext(ctx)
	if err != nil {
		return false, fmt.Errorf("system bus: %w", err)
	}
	defer conn.Close()
	unit, err := conn.GetUnitNameByPID(ctx, uint32(os.Getpid()))
	if err != nil {
		return false, fmt.Errorf("unit of this process: %w", err)
	}
	mode, err := conn.GetUnitTypePropertyContext(ctx, unit, "Service", "KillMode")
	if err != nil {
		return false, fmt.Errorf("KillMode of %s: %w", unit, err)
	}
	if text, _ := mode.Value.Value().(string); text != "process" {
		return false, nil
	}
	jobs, err := conn.ListJobsContext(ctx)
	if err != nil {
		return false, fmt.Errorf("jobs: %w", err)
	}
	for _, job := range jobs {
		if job.Unit == unit && job.JobType == "restart" {
			return true, nil
		}
	}
	return false, nil
}

// MainProcess returns the process that the manager takes for the main one of
// this process's service, 0 while there is none. It asks over D-Bus.
func MainProcess(ctx context.Context) (int, error) {
	conn, err := dbus.NewSystemConnectionContext(ctx)
	if err != nil {
		return 0, fmt.Errorf("system bus: %w", err)
	}
	defer conn.Close()
	unit, err := conn.GetUnitNameByPID(ctx, uint32(os.Getpid()))
	if err != nil {
		return 0, fmt.Errorf("unit of this process: %w", err)
	}
	main, err := conn.GetUnitTypePropertyContext(ctx, unit, "Service", "MainPID")
	if err != nil {
		return 0, fmt.Errorf("MainPID of %s: %w", unit, err)
	}
	pid, ok := main.Value.Value().(uint32)
	if !ok {
		return 0, fmt.Errorf("MainPID of %s is %v", unit, main.Value)
	}
	return int(pid), nil
}
