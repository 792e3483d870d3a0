package config

import (
	"errors"
	"fmt"
	"os/user"
	"path/filepath"
	"strconv"
)

// environment is what a configuration asks the machine for.
type environment struct {
	open func(path string) ([]byte, error)
	// realPath returns path absolute and without symbolic links, or as it is
	// when there is no such file.
	realPath func(path string) string
	uid      func(name string) (int, error)
	gid      func(name string) (int, error)
}

func systemEnvironment() environment {
	return environment{open: openFile, realPath: realPath, uid: lookupUser, gid: lookupGroup}
}

func realPath(path string) string {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return path
	}
	if abs, err := filepath.Abs(real); err == nil {
		return abs
	}
	return real
}

func lookupUser(name string) (int, error) {
	u, err := user.Lookup(name)
	if errors.As(err, new(user.UnknownUserError)) {
		return 0, errors.New("there is no such user")
	}
	if err != nil {
		return 0, fmt.Errorf("look up user: %w", err)
	}
	return strconv.Atoi(u.Uid)
}

func lookupGroup(name string) (int, error) {
	g, err := user.LookupGroup(name)
	if errors.As(err, new(user.UnknownGroupError)) {
		return 0, errors.New("there is no such group")
	}
	if err != nil {
		return 0, fmt.Errorf("look up group: %w", err)
	}
	return strconv.Atoi(g.Gid)
}
