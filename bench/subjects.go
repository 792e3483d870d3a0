package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"3proxyd/bench/peer"
)

// The words that stand for proxies.
const (
	allProxies  = "all"  // every one that is installed
	bestProxies = "best" // 3proxyd, and in each scenario the installed ones of peer.Contenders
)

// subjects finds the proxies. A 3proxyd without a binary has no path: build
// makes it.
func (o *options) subjects() ([]*subject, error) {
	labels := strings.Split(o.proxies, ",")
	best := labels[0] == bestProxies
	if best || labels[0] == allProxies {
		labels = append(o.installed(), labels[1:]...)
	}
	var list []*subject
	for _, label := range labels {
		s, err := o.subject(label)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(list, func(other *subject) bool { return other.label == label }) {
			return nil, fmt.Errorf("proxy %q is named twice", label)
		}
		s.contends = best && s.peer.Name != "3proxyd"
		list = append(list, s)
	}
	return list, nil
}

// build makes the binary of each 3proxyd that has none, in dir, and asks every
// proxy for its version.
func build(ctx context.Context, dir string, list []*subject) (err error) {
	built := ""
	for _, s := range list {
		if s.peer.Name == "3proxyd" && s.path == "" {
			if built == "" {
				if built, err = buildDaemon(ctx, dir); err != nil {
					return err
				}
			}
			s.path = built
		}
		if s.path != "" {
			s.version = s.peer.VersionOf(s.path)
		}
	}
	return nil
}

// subject finds the proxy of a label. A 3proxyd that is to be built has no path.
func (o *options) subject(label string) (*subject, error) {
	p, err := peer.Find(label)
	if err != nil {
		return nil, err
	}
	s := &subject{label: label, peer: p, options: o.services.last(label), lines: o.lines[label], path: o.bins.last(label)}
	if s.path == "" {
		// All options of one binary find it by the peer's name as well.
		s.path = o.bins.last(p.Binary)
	}
	if p.Binary == "" || s.path == "" && p.Name == "3proxyd" {
		return s, nil
	}
	if s.path == "" {
		if s.path, err = p.Lookup(); err != nil {
			return nil, fmt.Errorf("%w (see bench deps)", err)
		}
	}
	if s.path, err = filepath.Abs(s.path); err != nil {
		return nil, fmt.Errorf("proxy %s: %w", label, err)
	}
	if _, err := exec.LookPath(s.path); err != nil {
		return nil, fmt.Errorf("proxy %s: %w", label, err)
	}
	if err := p.Usable(s.path); err != nil {
		return nil, fmt.Errorf("proxy %s: %w", label, err)
	}
	return s, nil
}

// installed lists the peers that can be measured and tells which cannot.
func (o *options) installed() []string {
	var labels []string
	for _, p := range peer.All {
		if _, err := o.subject(p.Name); err != nil {
			fmt.Fprintf(os.Stderr, "left out: %v\n", err)
			continue
		}
		labels = append(labels, p.Name)
	}
	return labels
}
