package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"3proxyd/config"
	"3proxyd/supervisor"
)

// check reads the configuration and says everything there is to say about it,
// starting nothing.
func check(line commandLine, stdout, stderr io.Writer) int {
	cfg, diags := loader(line.config)()
	printDiagnostics(stderr, diags)
	if cfg == nil {
		return exitFailure
	}
	h := thisHost()
	p := examine(cfg, h)
	printDiagnostics(stderr, p.warnings)
	printDiagnostics(stderr, supervisor.CheckLogs(p.openable()))
	printDiagnostics(stderr, p.errors)
	if len(p.errors) > 0 {
		return exitFailure
	}
	cpus, err := supervisor.WorkerCPUs(cfg)
	if err != nil {
		fmt.Fprintf(stderr, "%s: error: %v\n", cfg.Source, err)
		return exitFailure
	}
	if problem := supervisor.CheckEngine(cfg); problem != nil {
		printDiagnostics(stderr, []config.Diagnostic{*problem})
		return exitFailure
	}
	limits := supervisor.CheckLimits(cfg, len(cpus))
	if limits.Fatal != "" {
		fmt.Fprintf(stderr, "%s: error: %s\n", cfg.Source, limits.Fatal)
		return exitFailure
	}
	for _, w := range limits.Warnings {
		fmt.Fprintf(stderr, "%s: warning: %s\n", cfg.Source, w)
	}
	if line.dump {
		return dump(dumped{cfg.Redacted(), effectiveOf(cfg, cpus, limits, h.control)}, stdout, stderr)
	}
	summary(cfg, len(cpus), limits, stdout)
	return exitOK
}

func dump(d dumped, stdout, stderr io.Writer) int {
	out := json.NewEncoder(stdout)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	if err := out.Encode(d); err != nil {
		fmt.Fprintf(stderr, "3proxyd: %v\n", err)
		return exitFailure
	}
	return exitOK
}

// summary says what the configuration comes to on this machine.
func summary(cfg *config.Config, workers int, limits supervisor.Limits, stdout io.Writer) {
	fmt.Fprintf(stdout, "%s: the configuration is good: %s, %s, %d of %d descriptors needed\n",
		cfg.Source, plural(len(cfg.Services), "service"), plural(workers, "worker"), limits.Status.FDsNeeded, limits.Status.FDsGranted)
	table := tabwriter.NewWriter(stdout, 0, 8, 2, ' ', 0)
	for i, s := range cfg.Services {
		target := ""
		if s.Target != nil {
			target = "to " + s.Target.String()
		}
		how := "set"
		if s.MaxConn == 0 {
			how = "what the descriptors allow"
		}
		fmt.Fprintf(table, "  %s\t%s\t%s\tmaxconn %d (%s)\n", s.Kind, s.Listen, target, limits.MaxConn[i], how)
	}
	_ = table.Flush()
}
