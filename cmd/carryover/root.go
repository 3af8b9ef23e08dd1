package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"
)

// serveFunc runs the proxy until ctx ends.
type serveFunc func(ctx context.Context, cfg configured, stderr io.Writer) error

// run is the whole program: args without the program's name, env in the form of os.Environ. It returns the exit code.
func run(ctx context.Context, args, env []string, stdout, stderr io.Writer) int {
	return runWithServe(ctx, args, env, stdout, stderr, serve)
}

// runWithServe is run with another way to serve.
func runWithServe(ctx context.Context, args, env []string, stdout, stderr io.Writer, serve serveFunc) int {
	root := newRootCommand(environment(env), serve)
	root.SetArgs(expandLists(args))
	root.SetOut(stdout)
	root.SetErr(stderr)
	addCompletion(root) // which takes the output of now
	return execute(ctx, root, stderr)
}

// newRootCommand builds the command tree. The root serves, so that the command line of vLLM's example works as it is.
func newRootCommand(env map[string]string, serve serveFunc) *cobra.Command {
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
	root.Version = versionText()
	root.SetVersionTemplate("{{.Version}}")
	root.Flags().BoolP(versionFlag, "v", false, "print the version")
	root.SetFlagErrorFunc(flagError)
	root.SetUsageFunc(printUsage)
	root.AddCommand(
		newServeCommand("serve", env, serve),
		newCheckConfigCommand(env),
		newProbeCommand(),
		newVersionCommand(),
		newDoctorCommand(env),
		newDemoCommand(),
		newSimCommand(),
		newMigrateCommand(),
		newManCommand(),
	)
	return root
}

func newServeCommand(use string, env map[string]string, serve serveFunc) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use,
		Short: "Run the proxy (the default command)",
		Args:  noArgs,
	}
	flags := addConfigFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		started := newLoader()
		cfg, telemetry, err := load(started, env, flags)
		if err != nil {
			return err
		}
		again := func() (Config, error) { return loadAgain(started, env, flags) }
		return serve(cmd.Context(), configured{cfg, telemetry, again}, cmd.ErrOrStderr())
	}
	return cmd
}
