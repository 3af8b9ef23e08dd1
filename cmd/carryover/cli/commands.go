package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/command"
	"carryover/cmd/carryover/config"
)

const printFlag = "print"

func newCheckConfigCommand(env map[string]string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check-config",
		Short: "Check flags, environment and configuration file without serving, and say what to beware of",
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
			text = config.Marshal(cfg)
		}
		if _, err := cmd.OutOrStdout().Write(text); err != nil {
			return fmt.Errorf("print configuration: %w", err)
		}
		return nil
	}
	return cmd
}

// probeTimeout bounds the whole probe. Container health checks run every few seconds; Docker's own limit is 30 s.
const probeTimeout = 2 * time.Second

func newProbeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "probe URL",
		Short: "Exit 0 if a GET of URL answers 2xx within 2 s (container health checks)",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &command.UsageError{Err: fmt.Errorf("probe takes one URL, got %d arguments; see %s --help", len(args), cmd.CommandPath())}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return probe(cmd.Context(), args[0], probeTimeout)
		},
	}
}

// probe ignores HTTP proxies of the environment, and takes a redirect as a failure.
func probe(ctx context.Context, target string, limit time.Duration) error {
	u, err := url.Parse(target)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return &command.UsageError{Err: fmt.Errorf("probe: %q: want an http or https URL", target)}
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, http.NoBody)
	if err != nil {
		return &command.UsageError{Err: fmt.Errorf("probe: %w", err)}
	}
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("probe: GET %q: status %s", target, resp.Status)
	}
	return nil
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print version and Go version, and the source revision if the build has recorded it",
		Args:  command.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return printVersion(cmd) },
	}
}

const versionFlag = "version"

// addVersionFlag does not use SetVersionTemplate of cobra: it links text/template, which looks up methods by name. Then the linker keeps
// every exported method of the program, 10 MB.
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

// addCompletion replaces cobra's errors for wrong arguments.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() != "completion" {
			continue
		}
		cmd.Args, cmd.RunE = command.NoArgs, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		for _, shell := range cmd.Commands() {
			shell.Args = command.NoArgs
		}
	}
}

func newManCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "man FOLDER",
		Short:  "Write the manual pages of all commands into a folder",
		Hidden: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &command.UsageError{Err: errors.New("man takes one argument, the folder to write into")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("man: %w", err)
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true
			// The date is SOURCE_DATE_EPOCH, or today.
			header := &doc.GenManHeader{Title: "CARRYOVER", Section: "1", Source: "carryover " + command.Version, Manual: "Carryover"}
			if err := doc.GenManTree(root, header, args[0]); err != nil {
				return fmt.Errorf("man: %w", err)
			}
			return nil
		},
	}
}
