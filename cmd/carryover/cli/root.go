// Package cli is the tree of the program's commands: serve, check-config, probe, version, sim, man, and those with a package of their own.
package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/command"
	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/demo"
	"carryover/cmd/carryover/doctor"
)

// serveFunc runs the proxy until ctx ends.
type serveFunc func(ctx context.Context, cfg app.Configured, stderr io.Writer) error

// Run is the whole program: args without the program's name, env in the form of os.Environ. It returns the exit code.
func Run(ctx context.Context, args, env []string, stdout, stderr io.Writer) int {
	return RunWithServe(ctx, args, env, stdout, stderr, app.Serve)
}

// RunWithServe is run with another way to serve.
func RunWithServe(ctx context.Context, args, env []string, stdout, stderr io.Writer, serve serveFunc) int {
	root := NewRootCommand(config.Environment(env), serve)
	root.SetArgs(config.ExpandLists(args))
	root.SetOut(stdout)
	root.SetErr(stderr)
	addCompletion(root) // which takes the output of now
	return command.Execute(ctx, root, stderr)
}

// NewRootCommand builds the command tree. The root serves, so that the command line of vLLM's example works as it is.
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
