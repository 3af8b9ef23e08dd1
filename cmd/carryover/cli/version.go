package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"carryover/cmd/carryover/command"
)

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print version and Go version, and the source revision if the build has recorded it",
		Args:  command.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return printVersion(cmd) },
	}
}

// versionFlag prints the version; only the root command has it.
const versionFlag = "version"

// addVersionFlag lets the root command print the version instead of what it does. Cobra's own flag with a text of ours (SetVersionTemplate)
// links text/template, which looks up methods by name: then the linker keeps every exported method of the program, 10 MB of them.
func addVersionFlag(root *cobra.Command) {
	asked := root.Flags().BoolP(versionFlag, "v", false, "print the version")
	run := root.RunE
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if *asked {
			return printVersion(cmd)
		}
		return run(cmd, args)
	}
}

func printVersion(cmd *cobra.Command) error {
	if _, err := io.WriteString(cmd.OutOrStdout(), command.VersionText()); err != nil {
		return fmt.Errorf("print version: %w", err)
	}
	return nil
}
