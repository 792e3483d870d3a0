package main

import (
	"3proxyd/config"
	"3proxyd/supervisor"
)

// dumped is what check --dump prints: the configuration, and what it comes to
// on this machine.
type dumped struct {
	*config.Config
	Effective effective `json:"effective"`
}

// effective has the numbers and paths that the configuration leaves to the
// machine, or that the machine cuts.
type effective struct {
	Workers int `json:"workers"`
	// CPUs has the CPU of each worker.
	CPUs     []int              `json:"cpus"`
	Control  string             `json:"control"`
	Services []effectiveService `json:"services"`
}

type effectiveService struct {
	ID      string `json:"id"`
	MaxConn int    `json:"maxconn"`
	Backlog int    `json:"backlog"`
}

func effectiveOf(cfg *config.Config, cpus []int, limits supervisor.Limits, control string) effective {
	e := effective{Workers: len(cpus), CPUs: cpus, Control: control}
	if cfg.Control.Path != "" {
		e.Control = cfg.Control.Path
	}
	for i, s := range cfg.Services {
		backlog := limits.Status.Somaxconn
		if s.Backlog > 0 {
			backlog = min(s.Backlog, backlog)
		}
		e.Services = append(e.Services, effectiveService{s.ID, limits.MaxConn[i], backlog})
	}
	return e
}
