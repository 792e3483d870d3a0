package lab

import (
	"os"
	"reflect"
	"testing"
)

func TestParseCPUs(t *testing.T) {
	def := CPUs{Client: []int{0}, Proxy: []int{1}, Origin: []int{0}}
	tests := []struct{ text, want string }{
		{"cli=0,prx=1,srv=0", "cli=0,prx=1,srv=0"},
		{"prx=2-4", "cli=0,prx=2+3+4,srv=0"},
		{"prx=1+3,srv=5", "cli=0,prx=1+3,srv=5"},
	}
	for _, tt := range tests {
		got, err := ParseCPUs(tt.text, def)
		if err != nil || got.String() != tt.want {
			t.Errorf("ParseCPUs(%q) = %v, %v; want %s", tt.text, got, err, tt.want)
		}
	}
	for _, bad := range []string{"", "prx", "prx=", "prx=a", "prx=3-1", "prx=-1", "prx=9999", "xyz=1"} {
		if got, err := ParseCPUs(bad, def); err == nil {
			t.Errorf("ParseCPUs(%q) = %v, want an error", bad, got)
		}
	}
}

func TestChooseCPUs(t *testing.T) {
	for _, tt := range []struct {
		all  []int
		want string
	}{
		{[]int{4}, "cli=4,prx=4,srv=4"},
		{[]int{0, 1}, "cli=0,prx=1,srv=0"},
		{[]int{0, 1, 2, 3}, "cli=0,prx=1,srv=2"},
	} {
		if got := chooseCPUs(tt.all).String(); got != tt.want {
			t.Errorf("chooseCPUs(%v) = %s, want %s", tt.all, got, tt.want)
		}
	}
}

func TestMask(t *testing.T) {
	for _, tt := range []struct {
		cpus []int
		want string
	}{
		{[]int{0}, "1"}, {[]int{1, 3}, "a"}, {[]int{32}, "1,00000000"}, {[]int{0, 64}, "1,00000000,00000001"},
	} {
		if got := mask(tt.cpus); got != tt.want {
			t.Errorf("mask(%v) = %s, want %s", tt.cpus, got, tt.want)
		}
	}
}

func TestAll(t *testing.T) {
	c := CPUs{Client: []int{3}, Proxy: []int{1, 2}, Origin: []int{3}}
	if got := c.All(); !reflect.DeepEqual(got, []int{1, 2, 3}) {
		t.Errorf("All = %v", got)
	}
}

func TestOwner(t *testing.T) {
	me, err := self()
	if err != nil {
		t.Fatal(err)
	}
	o, ok := parseOwner(me.name("cli"))
	if !ok || o != me || !o.alive() {
		t.Errorf("parseOwner(%q) = %+v, %v", me.name("cli"), o, ok)
	}
	if o := (owner{os.Getpid(), "1"}); o.alive() {
		t.Error("a process that started at another time counts as the owner")
	}
	for _, name := range []string{"", "3pb", "3pb-1", "3pb-x-1-cli", "other-1-2-cli", "3pb-1-2-cli-x", "3pb-1-2/.."} {
		if _, ok := parseOwner(name); ok {
			t.Errorf("parseOwner(%q) takes a foreign name for ours", name)
		}
	}
}
