package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print version and Go version, and the source revision if the build has recorded it",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := io.WriteString(cmd.OutOrStdout(), versionText()); err != nil {
				return fmt.Errorf("print version: %w", err)
			}
			return nil
		},
	}
}
