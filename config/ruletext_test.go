package config

import (
	"reflect"
	"testing"
)

// TestRuleText expects the text of a rule to be the rule again.
func TestRuleText(t *testing.T) {
	for text, want := range map[string]string{
		"allow":                              "allow",
		"deny *":                             "deny",
		"allow ann,bob":                      "allow ann,bob",
		"allow * 10.0.0.0/8,::1":             "allow * 10.0.0.0-10.255.255.255,::1",
		"deny * * *.example.com,192.0.2.1":   "deny * * 192.0.2.1,*.example.com",
		"allow * * * 80,443,8000-8999":       "allow * * * 80,443,8000-8999",
		"allow * * * * HTTP,CONNECT":         "allow * * * * HTTP,CONNECT",
		"allow * * * * HTTP_CONNECT,FTP_GET": "allow * * * * FTP_GET,HTTPS",
		"deny * * * * * 1-5":                 "deny * * * * * 1,2,3,4,5",
		"deny * * * * * 7 22:00:00-24:00:00": "deny * * * * * 0 22:00:00-24:00:00",
		`allow "a b"`:                        `allow "a b"`,
	} {
		rule := loadRule(t, text)
		if got := rule.String(); got != want {
			t.Errorf("%s: %s instead of %s", text, got, want)
		}
		again := loadRule(t, rule.String())
		rule.Pos, again.Pos = Pos{}, Pos{}
		if !reflect.DeepEqual(rule, again) {
			t.Errorf("%s: read again it is %+v instead of %+v", text, again, rule)
		}
	}
}

func loadRule(t *testing.T, line string) Rule {
	t.Helper()
	cfg, diags := LoadBytes("test.cfg", []byte("auth iponly\n"+line+"\nsocks\n"))
	if cfg == nil || len(cfg.ACLs) != 1 {
		t.Fatalf("%s: %v", line, diags)
	}
	return cfg.ACLs[0][0]
}

// TestForce expects force to hold for the services after it.
func TestForce(t *testing.T) {
	cfg, diags := LoadBytes("test.cfg", []byte("socks -p1\nforce\nsocks -p2\nnoforce\nsocks -p3\n"))
	if cfg == nil {
		t.Fatal(diags)
	}
	for i, want := range []bool{false, true, false} {
		if got := cfg.Services[i].Force; got != want {
			t.Errorf("service %d: force is %v", i, got)
		}
	}
}
