package main

import (
	"github.com/spf13/cobra"
)

// completeValues makes shells complete the values of a flag.
func completeValues(cmd *cobra.Command, flag string, values []string) {
	if values == nil {
		return
	}
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // there is no such flag
	}
}
