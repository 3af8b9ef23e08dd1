// Package commandtest runs one command as the program does, for tests of its package.
package commandtest

import (
	"bytes"
	"testing"

	"github.com/spf13/cobra"

	"carryover/cmd/carryover/command"
)

// Run runs cmd with args, the first of which is its name, and returns the exit code and what it has written.
func Run(t *testing.T, cmd *cobra.Command, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	root := &cobra.Command{Use: "carryover", SilenceUsage: true, SilenceErrors: true}
	root.SetFlagErrorFunc(command.FlagError)
	root.AddCommand(cmd)
	root.SetArgs(args)
	var out, errOut bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&errOut)
	code = command.Execute(t.Context(), root, &errOut)
	return code, out.String(), errOut.String()
}
