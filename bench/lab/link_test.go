package lab

import (
	"strings"
	"testing"
	"time"
)

func TestParseLink(t *testing.T) {
	for _, tt := range []struct {
		text string
		want Link
	}{
		{"20mbit,5ms,0.5%", Link{20e6, 5 * time.Millisecond, 0.005}},
		{"500kbit,0s", Link{500e3, 0, 0}},
		{"1gbit,1500us,0%", Link{1e9, 1500 * time.Microsecond, 0}},
	} {
		if got, err := ParseLink(tt.text); err != nil || got != tt.want {
			t.Errorf("ParseLink(%q) = %+v, %v; want %+v", tt.text, got, err, tt.want)
		}
	}
	for _, bad := range []string{
		"", "20mbit", "20,5ms", "0mbit,5ms", "7bit,5ms", "20mbit,5", "20mbit,-1s", "20mbit,1h", "20mbit,5ms,1",
		"20mbit,5ms,51%", "20mbit,5ms,NaN%", "20mbit,5ms,1%,2", "999gbit,1ms",
	} {
		if got, err := ParseLink(bad); err == nil {
			t.Errorf("ParseLink(%q) = %+v, want an error", bad, got)
		}
	}
}

func FuzzParseLink(f *testing.F) {
	f.Add("20mbit,5ms,0.5%")
	f.Add("1gbit,1us")
	f.Fuzz(func(t *testing.T, text string) {
		l, err := ParseLink(text)
		if err == nil && (l.Rate < minLinkRate || l.Rate > maxLinkRate || l.Delay < 0 || l.Delay > maxLinkDelay || !(l.Loss >= 0 && l.Loss <= 0.5)) {
			t.Errorf("ParseLink(%q) = %+v exceeds the limits", text, l)
		}
	})
}

func TestLinkCommands(t *testing.T) {
	var text strings.Builder
	for _, args := range (Link{20e6, 5 * time.Millisecond, 0.005}).commands("c", "p") {
		text.WriteString(strings.Join(args, " ") + "\n")
	}
	for _, want := range []string{
		"tc -n c qdisc add dev cli0 root handle 1: netem limit 1000000 delay 5000us loss 0.5%\n",
		"tc -n c qdisc add dev ifb0 parent 1:1 handle 10: fq maxrate 20000000bit limit 1000000 flow_limit 165 ",
		"ip -n p link set prx0 gso_max_segs 1\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
}
