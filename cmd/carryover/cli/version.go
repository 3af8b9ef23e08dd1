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
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := io.WriteString(cmd.OutOrStdout(), command.VersionText()); err != nil {
				return fmt.Errorf("print version: %w", err)
			}
			return nil
		},
	}
}
