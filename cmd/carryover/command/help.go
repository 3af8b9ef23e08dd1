package command

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// HelpAllFlag is --help with every setting.
const HelpAllFlag = "help-all"

// helpAll asks for help when it is set. It implements pflag.Value.
type helpAll struct{ flags *pflag.FlagSet }

// String is the default, none.
func (h helpAll) String() string { return "" }

// Type is that of a flag without a value.
func (h helpAll) Type() string { return "bool" }

// Set asks for help, whatever else is on the command line.
func (h helpAll) Set(value string) error {
	if err := h.flags.Set("help", value); err != nil {
		return fmt.Errorf("--%s: %w", HelpAllFlag, err)
	}
	return nil
}

// AddHelpAll gives a command the flag --help-all.
func AddHelpAll(cmd *cobra.Command) {
	cmd.Flags().VarPF(helpAll{cmd.Flags()}, HelpAllFlag, "", "help with every setting").NoOptDefVal = "true"
}
