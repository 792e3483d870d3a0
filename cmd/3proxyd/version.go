package main

import "runtime/debug"

// release is the version of a release; the linker may set it (-X).
var release = "0.1.0"

// version is the release, with the revision it was built from where the
// toolchain recorded it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return release
	}
	revision, modified := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "+"
		}
	}
	if revision == "" {
		return release
	}
	return release + " (" + revision + modified + ")"
}
