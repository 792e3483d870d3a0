package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"

	"3proxyd/bench/peer"
)

// tools are what the lab itself calls, and the Debian packages that hold them.
// wrk, iperf3 and perf are for bench check only.
var tools = []struct{ name, pkg string }{
	{"ip", "iproute2"}, {"tc", "iproute2"}, {"strace", "strace"},
	{"wrk", "wrk"}, {"iperf3", "iperf3"}, {"perf", "linux-perf"},
}

// depsCommand tells what is installed and installs what is missing.
func depsCommand(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("deps", flag.ContinueOnError)
	install := f.Bool("install", false, "install what is missing by apt-get, without starting any service")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	var missing []string
	for _, tool := range tools {
		path, err := exec.LookPath(tool.name)
		if err != nil {
			path = "missing"
			missing = append(missing, tool.pkg)
		}
		fmt.Printf("%-20s %s\n", tool.name, path)
	}
	for _, p := range peer.All {
		if p.Binary == "" || p.Name == "3proxyd" {
			continue
		}
		path, err := p.Lookup()
		if err == nil {
			err = p.Usable(path)
		}
		switch {
		case err == nil:
			fmt.Printf("%-20s %s (%s)\n", p.Name, path, p.VersionOf(path))
		case len(p.Packages) == 0:
			fmt.Printf("%-20s missing; Debian has no package of it: put it into the path, or name it by --bin\n", p.Name)
		default:
			fmt.Printf("%-20s missing\n", p.Name)
			missing = append(missing, p.Packages...)
		}
	}
	slices.Sort(missing)
	missing = slices.Compact(missing)
	if len(missing) == 0 {
		return nil
	}
	if !*install {
		fmt.Printf("\nInstall the missing ones with: bench deps --install (Debian: %s)\n", strings.Join(missing, " "))
		return nil
	}
	return aptInstall(ctx, missing)
}

// policy is asked by Debian's packages whether they may start their services;
// exit status 101 forbids it (invoke-rc.d(8)).
const policy = "/usr/sbin/policy-rc.d"

func aptInstall(ctx context.Context, packages []string) error {
	f, err := os.OpenFile(policy, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	switch {
	case errors.Is(err, fs.ErrExist): // the machine has a policy of its own
	case err != nil:
		return fmt.Errorf("forbid starting services: %w", err)
	default:
		defer os.Remove(policy)
		_, err := f.WriteString("#!/bin/sh\nexit 101\n")
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("forbid starting services: %w", err)
		}
	}
	if err := apt(ctx, "update", "-q"); err != nil {
		return err
	}
	return apt(ctx, append([]string{"install", "-y", "--no-install-recommends"}, packages...)...)
}

func apt(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("apt-get %s: %w", args[0], err)
	}
	return nil
}
