package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/command"
	"carryover/cmd/carryover/config"
)

// printFlag makes check-config print the effective configuration.
const printFlag = "print"

func newCheckConfigCommand(env map[string]string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check-config",
		Short: "Check flags, environment and configuration file without serving, and say what they come to",
		Args:  command.NoArgs,
	}
	flags := config.AddFlags(cmd)
	show := cmd.Flags().Bool(printFlag, false, "print the effective configuration as YAML, secrets redacted")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, _, err := app.Load(config.NewLoader(), env, flags)
		if err != nil {
			return err
		}
		text := []byte(explain(cfg))
		if *show {
			if text, err = config.Marshal(cfg); err != nil {
				return err
			}
		}
		if _, err := cmd.OutOrStdout().Write(text); err != nil {
			return fmt.Errorf("print configuration: %w", err)
		}
		return nil
	}
	return cmd
}

func summary(cfg config.Config) string {
	return fmt.Sprintf("ok: %d prefill, %d decode, connector %s, store %s, ttl %s\n",
		len(cfg.Prefill), len(cfg.Decode), cfg.Connector.Name, config.StoreName(cfg.Redis), config.FormatDuration(cfg.Store.TTL))
}
