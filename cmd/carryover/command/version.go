package command

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Version is the version of the program, which the linker sets: -ldflags "-X carryover/cmd/carryover/command.Version=v1.2.3".
var Version = "dev" //nolint:gochecknoglobals // the linker sets variables only

// VersionText is what is known of the program. `make build` records no revision, so that the binary is the same wherever it is built.
func VersionText() string {
	said := fmt.Sprintf("carryover %s\n%s %s/%s\n", Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	info, ok := debug.ReadBuildInfo()
	if !ok || Revision(info.Settings) == "" {
		return said
	}
	return said + "revision " + Revision(info.Settings) + "\n"
}

// Revision is the commit that the binary was built from, which the Go tool records when it builds inside a checkout, "" if it did not.
func Revision(settings []debug.BuildSetting) string {
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
