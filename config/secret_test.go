package config

import (
	"strings"
	"testing"
)

func TestHideSecret(t *testing.T) {
	for in, want := range map[string]string{
		"alice:CL:pw":        "alice:CL:***",
		":NT:0123":           ":NT:***",
		"bob:CR:$1$x$y":      "bob:CR:***",
		"bob:secret":         "bob:***",
		"bob:12345":          "bob:***",
		"abe:deadbeef":       "abe:***",
		"bob:a b:c":          "bob:***",
		"plain":              "plain",
		"::1":                "::1",
		"2001:db8::/129":     "2001:db8::/129",
		"[::1]:99999":        "[::1]:99999",
		"127.0.0.1:80":       "127.0.0.1:80",
		"unix:/run/x":        "unix:/run/x",
		"/run/a:b":           "/run/a:b",
		"09:00:00-08:00:00":  "09:00:00-08:00:00",
		"/x/y:CL:wonderland": "/x/y:CL:***",
	} {
		if got := hideSecret(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// TestNoSecretInMessages puts words of users where they do not belong.
func TestNoSecretInMessages(t *testing.T) {
	const secret = "wonder,hunter2+land"
	for _, word := range []string{"alice:CL:" + secret, "alice:CR:" + secret, ":NT:" + secret, "alice:XX:" + secret, "alice:" + secret} {
		for _, line := range []string{
			"%", "usrs %", "auth strong users %", "auth %", "allow %", "deny * %", "allow * * %", "allow * * * %",
			"allow * * * * %", "allow * * * * * %", "allow * * * * * * %", "log %/", "log a %", "log @%", "log &%", "log %%",
			"logformat %", "internal %", "external %", "proxy %", "proxy -i%", "proxy -e%", "proxy -p%", "proxy -b%",
			"proxy -s%", "proxy -ol%", "proxy -olTCP_NODELAY=%", "proxy -z%", "proxy -%", "socks users %", "tcppm % h 1",
			"tcppm 1 % 1", "tcppm 1 h %", "maxconn %", "timeouts %", "nserver %", "nscache %", "nsrecord % 1.2.3.4",
			"nsrecord h %", "workers %", "cpus %", "control %", "control /x %", "control /x 0600 %", "pidfile %/",
			"setuid %", "setgid %", "include %", "drain_timeout %", "upgrade_trial %", "upgrade_old %", "rebalance %", "users x:%", "users x:YY:y %", "end %",
		} {
			text := strings.ReplaceAll(line, "%", word)
			_, diags := loadText(text+"\nproxy -i127.0.0.1", nil)
			got := strings.Join(lines(diags), "\n")
			for _, part := range []string{"wonder", "hunter2", "land"} {
				if strings.Contains(got, part) {
					t.Errorf("%s\n%s", text, got)
				}
			}
		}
	}
	_, diags := loadText("auth alice:CL:"+secret, nil)
	wantLines(t, diags, `1:6: error: auth: "alice:CL:***" is a word of the users command, which needs a line of its own`)
}
