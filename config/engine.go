package config

import "slices"

// Engines are what the command engine takes; the first is the default.
var Engines = []string{"auto", "epoll", "io_uring"}

func runEngine(l *loader, c call) {
	w := c.args[0]
	if !slices.Contains(Engines, w.text) {
		l.expected("engine", w, "auto, epoll or io_uring")
		return
	}
	l.cfg.Engine = w.text
}
