package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"

	"3proxyd/bench/peer"
)

// tools are what the lab itself calls, and the Debian packages that hold them.
var tools = map[string]string{"ip": "iproute2", "strace": "strace"}

// depsCommand tells what is installed and installs what is missing.
func depsCommand(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("deps", flag.ContinueOnError)
	install := f.Bool("install", false, "install what is missing by apt-get, without starting any service")
	if err := f.Parse(args); err != nil {
		return err
	}
	var missing []string
	for name, pkg := range tools {
		path, err := exec.LookPath(name)
		if err != nil {
			path = "missing"
			missing = append(missing, pkg)
		}
		fmt.Printf("%-16s %s\n", name, path)
	}
	for _, p := range peer.All {
		if p.Binary == "" || len(p.Packages) == 0 {
			continue
		}
		path, err := p.Lookup()
		if err != nil {
			fmt.Printf("%-16s missing\n", p.Name)
			missing = append(missing, p.Packages...)
			continue
		}
		fmt.Printf("%-16s %s (%s)\n", p.Name, path, p.VersionOf(path))
	}
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
	args := append([]string{"install", "-y", "--no-install-recommends"}, packages...)
	cmd := exec.CommandContext(ctx, "apt-get", args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("apt-get install: %w", err)
	}
	return nil
}
