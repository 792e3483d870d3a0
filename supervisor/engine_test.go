package supervisor

import (
	"errors"
	"testing"

	"3proxyd/config"
)

func TestURingPermitted(t *testing.T) {
	nobody, group := &config.Identity{ID: 65534}, &config.Identity{ID: 300}
	for _, c := range []struct {
		name     string
		uid, gid *config.Identity
		files    map[string]string
		want     bool
	}{
		{"no such setting", nobody, nil, nil, true},
		{"free for all", nobody, nil, map[string]string{"disabled": "0\n"}, true},
		{"privileged only", nobody, nil, map[string]string{"disabled": "1\n", "group": "-1\n"}, false},
		{"workers stay privileged", nil, nil, map[string]string{"disabled": "1\n", "group": "-1\n"}, true},
		{"of another group", nobody, group, map[string]string{"disabled": "1\n", "group": "301\n"}, false},
		{"of the group", nobody, group, map[string]string{"disabled": "1\n", "group": "300\n"}, true},
	} {
		m := machine{readFile: func(path string) ([]byte, error) {
			text, ok := c.files[path[len("/proc/sys/kernel/io_uring_"):]]
			if !ok {
				return nil, errors.New("none")
			}
			return []byte(text), nil
		}}
		if got := m.uringPermitted(&config.Config{SetUID: c.uid, SetGID: c.gid}); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
