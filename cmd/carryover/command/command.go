// Package command has what all commands share: exit codes, UsageError, suggestions for mistyped words, shell completion and the version.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"carryover/server/suggest"
)

// The exit codes of every command: done, failed, and wrong usage or configuration.
const (
	ExitOK      = 0
	ExitRuntime = 1
	ExitUsage   = 2
)

// UsageError is an error that the caller can correct: a flag, a setting, an argument.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }

func (e *UsageError) Unwrap() error { return e.Err }

// Execute runs a command tree. It writes each line of the error to stderr, and returns the exit code.
func Execute(ctx context.Context, root *cobra.Command, stderr io.Writer) int {
	err := root.ExecuteContext(ctx)
	if err == nil {
		return ExitOK
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintf(stderr, "carryover: %s\n", line)
	}
	if _, ok := errors.AsType[*UsageError](err); ok {
		return ExitUsage
	}
	return ExitRuntime
}

// LookUntil polls every 20 ms until holds returns true, and reports whether it did within the limit.
func LookUntil(ctx context.Context, limit time.Duration, holds func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}

// NoArgs refuses positional arguments with a UsageError; cobra's own check gives none.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return unknownCommand(cmd, args[0])
}

// HelpAllFlag is the flag for help with every setting.
const HelpAllFlag = "help-all"

// AddHelpAll adds --help-all, which asks for help whatever else is on the command line.
func AddHelpAll(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolFunc(HelpAllFlag, "help with every setting", func(value string) error {
		if err := flags.Set("help", value); err != nil {
			return fmt.Errorf("--%s: %w", HelpAllFlag, err)
		}
		return nil
	})
}

// FlagError adds a suggestion to the error of an unknown flag.
func FlagError(cmd *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return &UsageError{Err: err}
	}
	word := unknown.GetSpecifiedShortnames() // "-port" is read as -p -o -r -t
	if word == "" {
		word = unknown.GetSpecifiedName()
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return &UsageError{Err: fmt.Errorf("%w%s", err, suggest.DidYouMean(word, names, func(name string) string { return "--" + name }))}
}

// Meant returns a "did you mean" question to append to a message, "" if no candidate is similar.
func Meant(word string, candidates []string) string {
	return suggest.DidYouMean(word, candidates, func(name string) string { return name })
}

func unknownCommand(cmd *cobra.Command, word string) error {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	see := "; see "
	question := Meant(word, names)
	if question != "" {
		see = question + " See "
	}
	return &UsageError{Err: fmt.Errorf("unknown command or argument %q%s%s --help", word, see, cmd.CommandPath())}
}

// CompleteValues makes shells complete the values of a flag.
func CompleteValues(cmd *cobra.Command, flag string, values []string) {
	if values == nil {
		return
	}
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // no such flag
	}
}

// Version is set by the linker: -ldflags "-X carryover/cmd/carryover/command.Version=v1.2.3".
var Version = "dev" //nolint:gochecknoglobals // the linker sets variables only

// VersionText describes the build. `make build` records no revision, so that the binary is the same wherever it is built.
func VersionText() string {
	said := fmt.Sprintf("carryover %s\n%s %s/%s\n", Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	info, ok := debug.ReadBuildInfo()
	if !ok || Revision(info.Settings) == "" {
		return said
	}
	return said + "revision " + Revision(info.Settings) + "\n"
}

// Revision returns the commit that the Go tool recorded, "" if the build was not inside a checkout.
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
