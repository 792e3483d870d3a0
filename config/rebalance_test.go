package config

import "testing"

func TestRebalance(t *testing.T) {
	for text, want := range map[string]int{"": 0, "rebalance 0\n": 0, "rebalance 30\n": 30} {
		cfg, diags := LoadBytes("t.cfg", []byte("auth none\n"+text+"internal 127.0.0.1\nsocks\n"))
		if cfg == nil || cfg.Rebalance != want {
			t.Errorf("%q: %+v, %v", text, cfg, diags)
		}
	}
}
