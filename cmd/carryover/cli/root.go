// Package cli is the tree of the program's commands.
package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/command"
	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/demo"
	"carryover/cmd/carryover/doctor"
)

type serveFunc func(ctx context.Context, cfg app.Configured, stderr io.Writer) error

// Run is the whole program. args has no program name, env is as os.Environ; the result is the exit code.
func Run(ctx context.Context, args, env []string, stdout, stderr io.Writer) int {
	return RunWithServe(ctx, args, env, stdout, stderr, app.Serve)
}

// RunWithServe is Run with another way to serve.
func RunWithServe(ctx context.Context, args, env []string, stdout, stderr io.Writer, serve serveFunc) int {
	root := NewRootCommand(config.Environment(env), serve)
	root.SetArgs(config.ExpandLists(args))
	root.SetOut(stdout)
	root.SetErr(stderr)
	addCompletion(root) // after SetOut: cobra takes the writer now
	return command.Execute(ctx, root, stderr)
}

// NewRootCommand builds the command tree. The root serves, so that the command line of vLLM's example works unchanged.
func NewRootCommand(env map[string]string, serve serveFunc) *cobra.Command {
	root := newServeCommand("carryover [serve]", env, serve)
	root.Short = "Multi-turn proxy for disaggregated vLLM"
	root.Long = `carryover is a multi-turn proxy for disaggregated (prefill and decode) vLLM.
It carries decode's KV cache of one turn over to the prefill of the next.

Without a command it serves. A setting is a flag, an environment variable and a
key of the configuration file: --max-streams, CARRYOVER_MAX_STREAMS and
max_streams in section limits. Flags win over the environment, which wins over
the file. --help-all names all of them, and "carryover check-config --print"
shows their values.

Traces go to the collector that OTEL_EXPORTER_OTLP_ENDPOINT names, as all of
OpenTelemetry's standard variables say.`
	root.SilenceUsage = true
	root.SilenceErrors = true
	addVersionFlag(root)
	root.SetFlagErrorFunc(command.FlagError)
	root.SetUsageFunc(printUsage)
	root.AddCommand(
		newServeCommand("serve", env, serve),
		newCheckConfigCommand(env),
		newProbeCommand(),
		newVersionCommand(),
		doctor.NewCommand(env),
		demo.NewCommand(),
		newSimCommand(),
		newManCommand(),
	)
	return root
}

func newServeCommand(use string, env map[string]string, serve serveFunc) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use,
		Short: "Run the proxy (the default command)",
		Args:  command.NoArgs,
	}
	flags := config.AddFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		started := config.NewLoader()
		cfg, telemetry, err := app.Load(started, env, flags)
		if err != nil {
			return err
		}
		again := func() (config.Config, error) { return config.LoadAgain(started, env, flags) }
		return serve(cmd.Context(), app.Configured{Config: cfg, Telemetry: telemetry, Again: again}, cmd.ErrOrStderr())
	}
	return cmd
}

// printUsage lists settings by section; a command without configuration gets pflag's list.
func printUsage(cmd *cobra.Command) error {
	out := cmd.OutOrStderr()
	fmt.Fprintf(out, "Usage:\n  %s\n", cmd.UseLine())
	if cmd.HasAvailableSubCommands() {
		fmt.Fprint(out, "\nCommands:\n")
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				fmt.Fprintf(out, "  %-14s%s\n", sub.Name(), sub.Short)
			}
		}
	}
	if cmd.Flags().Lookup(config.FileFlag) == nil {
		if flags := cmd.LocalFlags().FlagUsages(); flags != "" {
			fmt.Fprintf(out, "\nFlags:\n%s", flags)
		}
		return nil
	}
	all := cmd.Flags().Changed(command.HelpAllFlag)
	for _, group := range flagGroups(all) {
		fmt.Fprintf(out, "\n%s:\n", group.title)
		if err := printFlags(out, cmd, group.flags); err != nil {
			return fmt.Errorf("print usage: %w", err)
		}
	}
	if !all {
		fmt.Fprint(out, "\nThese are the settings that most people need; --help-all shows all.\n")
	}
	return nil
}

type flagGroup struct {
	title string
	flags []string
}

// flagGroups lists all flags in order, or the command's own and the common ones. It omits the plural spellings of the example's flags.
func flagGroups(all bool) []flagGroup {
	groups := []flagGroup{{title: "general", flags: append([]string{config.FileFlag, printFlag, "help", command.HelpAllFlag, versionFlag}, doctor.Flags()...)}}
	cfg := config.Default()
	for _, s := range config.Settings(&cfg) {
		flags := []string{s.Flag}
		for _, r := range config.ExampleRoles() {
			if r.Key == s.Key && all {
				flags = append(flags, r.Hosts, r.Ports)
			}
		}
		switch last := &groups[len(groups)-1]; {
		case s.Flag == "" || !all && !slices.Contains(commonFlags(), s.Flag):
		case last.title == s.Section():
			last.flags = append(last.flags, flags...)
		default:
			groups = append(groups, flagGroup{s.Section(), flags})
		}
	}
	return groups
}

func printFlags(out io.Writer, cmd *cobra.Command, names []string) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	for _, name := range names {
		f := cmd.Flags().Lookup(name)
		if f == nil {
			continue
		}
		left := "--" + name
		if kind := f.Value.Type(); kind != "" && !strings.HasPrefix(kind, "bool") {
			left += " " + kind
		}
		right := f.Usage
		if f.DefValue != "" && f.DefValue != "false" && !strings.Contains(right, "(default") {
			right += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(w, "  %s\t%s\n", left, right)
	}
	return w.Flush()
}

func commonFlags() []string {
	return []string{
		"host", "port", "admin-listen", "admin-token-file", "prefill", "decode", "connector", "routing-prefill", "routing-decode", "discovery-file",
		"k8s-label-selector", "conversation-sources", "tenant-header", "secret-file", "hand-back", "decoder-kv-ttl", "redis-url", "max-streams",
		"log-format", "log-level",
	}
}
