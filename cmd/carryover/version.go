package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

var version = "dev" // set by the linker: -ldflags "-X main.version=v1.2.3"

// versionText is what is known of the program. `make build` records no revision, so that the binary is the same wherever it is built.
func versionText() string {
	said := fmt.Sprintf("carryover %s\n%s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	info, ok := debug.ReadBuildInfo()
	if !ok || revision(info.Settings) == "" {
		return said
	}
	return said + "revision " + revision(info.Settings) + "\n"
}

// revision is the commit that the binary was built from, which the Go tool records when it builds inside a checkout, "" if it did not.
func revision(settings []debug.BuildSetting) string {
	var commit, modified string
	for _, s := range settings {
		switch s.Key {
		case "vcs.revision":
			commit = s.Value
		case "vcs.modified":
			modified = s.Value
		}
	}
	switch {
	case commit == "":
		return ""
	case modified == "true":
		return commit + " (modified)"
	default:
		return commit
	}
}
