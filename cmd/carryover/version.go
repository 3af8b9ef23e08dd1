package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

var version = "dev" // set by the linker: -ldflags "-X main.version=v1.2.3"

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print version, Go version and source revision",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var settings []debug.BuildSetting
			if info, ok := debug.ReadBuildInfo(); ok {
				settings = info.Settings
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "carryover %s\n%s %s/%s\nrevision %s\n",
				version, runtime.Version(), runtime.GOOS, runtime.GOARCH, revision(settings))
			if err != nil {
				return fmt.Errorf("print version: %w", err)
			}
			return nil
		},
	}
}

// revision is the commit that the binary was built from, which the Go tool records when it builds inside a checkout.
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
		return "unknown"
	case modified == "true":
		return commit + " (modified)"
	default:
		return commit
	}
}
