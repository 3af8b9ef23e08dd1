// Package command is what the commands of the program share: exit codes, the error of a caller who has something to correct, suggestions
// for mistyped words, completion of values, and the version.
//
// Exit codes: 0 when a command did its work, 1 when it could not, 2 for wrong usage or configuration.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// The exit codes of every command.
const (
	ExitOK      = 0
	ExitRuntime = 1
	ExitUsage   = 2
)

// UsageError marks what the caller of the program has to correct: a flag, a setting, an argument.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }

func (e *UsageError) Unwrap() error { return e.Err }

// Execute runs a command tree. It reports the error on stderr, a line each, and returns the exit code.
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

// NoArgs refuses positional arguments; cobra's own check would be reported as a runtime error.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return unknownCommand(cmd, args[0])
}
