package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"3proxyd/bench/lab"
	"3proxyd/bench/wire"
)

// What can make a slow network.
const (
	byAuto  = "auto"  // netem where the kernel has it, else wire
	byNetem = "netem" // the kernel
	byWire  = "wire"  // a process of ours
)

// linkSeed chooses the packets that a wire loses, the same in every run.
const linkSeed = 1

// parseLink checks --link and --link-by; the result is nil without a link.
func (o *options) parseLink() (*lab.Link, error) {
	switch o.linkBy {
	case byAuto, byNetem, byWire:
	default:
		return nil, fmt.Errorf("--link-by %q is not one of auto, netem, wire", o.linkBy)
	}
	if o.link == "" && o.linkBy != byAuto {
		return nil, errors.New("--link-by needs a --link")
	}
	if o.link == "" {
		return nil, nil
	}
	k, err := lab.ParseLink(o.link)
	return &k, err
}

// shape gives the network between clients and proxy the qualities of k. It
// returns what made them, and the process that does if it is the wire.
func (o *options) shape(ctx context.Context, l *lab.Lab, k lab.Link) (*child, error) {
	if o.linkBy != byWire {
		err := l.Shape(k)
		if err == nil {
			o.link += " by " + byNetem
			return nil, nil
		}
		if o.linkBy == byNetem || !errors.Is(err, lab.ErrKernel) {
			return nil, err
		}
		fmt.Fprintf(os.Stderr, "%v; the link is made in user space\n", err)
	}
	o.link += " by " + byWire
	return startWire(ctx, l, k)
}

// startWire starts the process that carries the packets between clients and
// proxy, on the client's CPUs.
func startWire(ctx context.Context, l *lab.Lab, k lab.Link) (*child, error) {
	cfg, err := json.Marshal(wire.Config{Rate: k.Rate, Delay: k.Delay, Loss: k.Loss, Seed: linkSeed})
	if err != nil {
		return nil, fmt.Errorf("encode link: %w", err)
	}
	client, proxy, err := l.Tuns()
	if err != nil {
		return nil, err
	}
	// The process has copies: the devices end with it.
	defer client.Close()
	defer proxy.Close()
	w, err := startSelfWith(l.Client, []*os.File{client, proxy}, cmdWire, string(cfg))
	if err != nil {
		return nil, err
	}
	if _, err := w.hear(ctx, 10*time.Second); err != nil {
		w.end()
		return nil, err
	}
	return w, nil
}

func wireCommand(args []string) error {
	if len(args) != 1 {
		return errors.New("expected a configuration")
	}
	var cfg wire.Config
	if err := json.NewDecoder(strings.NewReader(args[0])).Decode(&cfg); err != nil {
		return fmt.Errorf("wire: %w", err)
	}
	return wire.Run(cfg)
}

// wireStats asks the wire for its totals; they are 0 without one.
func (c *child) wireStats(ctx context.Context) (wire.Stats, error) {
	var st wire.Stats
	if c == nil {
		return st, nil
	}
	return st, c.ask(ctx, &st)
}
