// Package version says which version of the programs this is.
package version

import "runtime/debug"

// Release is the version of a release; the linker may set it (-X).
var Release = "0.1.0"

// String is the release, with the revision it was built from where the
// toolchain recorded it.
func String() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Release
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
		return Release
	}
	return Release + " (" + revision + modified + ")"
}
