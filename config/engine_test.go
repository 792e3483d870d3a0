package config

import (
	"strings"
	"testing"
)

func TestEngine(t *testing.T) {
	for _, name := range append(Engines, "") {
		text := "auth none\ninternal 127.0.0.1\nsocks\n"
		if name != "" {
			text = "engine " + name + "\n" + text
		}
		cfg, diags := LoadBytes("t.cfg", []byte(text))
		if cfg == nil || cfg.Engine != name {
			t.Errorf("engine %q: %+v, %v", name, cfg, diags)
		}
	}
	_, diags := LoadBytes("t.cfg", []byte("engine kqueue\nsocks -i127.0.0.1\n"))
	if len(diags) == 0 || !strings.HasPrefix(diags[0].String(), `t.cfg:1:8: error: engine: "kqueue": expected auto, epoll or io_uring`) {
		t.Errorf("engine kqueue: %v", diags)
	}
}
