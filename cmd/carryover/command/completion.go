package command

import (
	"github.com/spf13/cobra"
)

// CompleteValues makes shells complete the values of a flag.
func CompleteValues(cmd *cobra.Command, flag string, values []string) {
	if values == nil {
		return
	}
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // there is no such flag
	}
}
