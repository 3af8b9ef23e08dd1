// Package doctor is the command that finds out what keeps KV from being reused.
//
// It wires the program without clients, first for the whole fleet with the probes of serve. Then it runs two conversations of two turns on
// each pair, reads their records, and releases their tickets. judge.go judges the observations, table.go has all texts. Codes are stable,
// because scripts depend on them.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/command"
	"carryover/cmd/carryover/config"
	"carryover/upstream"
)

type options struct {
	through string // the address of clients, "" for none
	json    bool
	strict  bool
	all     bool
	verbose bool
	noTurns bool
	timeout time.Duration
}

// Flags returns the doctor's own flags in the order of help texts.
func Flags() []string {
	return []string{"through", "no-turns", "timeout", "all", "json", "strict", "verbose"}
}

const doctorLong = `Find out what keeps KV from being reused, with the settings of serve and no proxy running.

Each instance is asked what it is. Each pair of a prefill and a decode instance
gets four short requests, two conversations of two turns, through the program's
own code on a loopback address. Their tickets are released, and nothing is stored
in Redis. At most 64 pairs are tried, each instance in one if possible. The exit
code is 0 without errors, 1 with errors (--strict: with warnings, too) and 2 if
the command line or a setting is wrong.`

// NewCommand returns the command.
func NewCommand(env map[string]string) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find out what keeps KV from being reused, and how to change that",
		Long:  doctorLong,
		Args:  command.NoArgs,
	}
	flags := config.AddFlags(cmd)
	own := cmd.Flags()
	own.StringVar(&o.through, "through", "", "address that clients use: examine the proxy in front of Carryover there, with a short request")
	own.BoolVar(&o.noTurns, "no-turns", false, "run no turns: instances get only the probes that serve sends")
	own.DurationVar(&o.timeout, "timeout", 2*time.Minute, "time limit for everything; a turn that has begun runs to its end")
	own.BoolVar(&o.all, "all", false, "also show checks that hold")
	own.BoolVar(&o.json, "json", false, "print JSON, with checks that hold")
	own.BoolVar(&o.strict, "strict", false, "exit 1 for warnings, too")
	own.BoolVar(&o.verbose, "verbose", false, "write the program's own log to standard error, at log.level")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := config.NewLoader().Load(env, flags)
		if err != nil {
			return err
		}
		if o.timeout <= 0 {
			return &command.UsageError{Err: errors.New("doctor --timeout: want a positive duration")}
		}
		if _, err := upstream.ParseBaseURL(o.through); o.through != "" && err != nil {
			return &command.UsageError{Err: fmt.Errorf("doctor --through %q: want http://host[:port] or https://host[:port]", o.through)}
		}
		return runDoctor(cmd.Context(), cfg, o, cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	return cmd
}

// runDoctor examines a deployment and prints the report. The error counts the findings that fail the command.
func runDoctor(ctx context.Context, cfg config.Config, o options, stdout, stderr io.Writer) error {
	logger := slog.New(slog.DiscardHandler)
	if o.verbose {
		logger, _ = app.NewLogger(cfg.Log, stderr)
	}
	d := &doctor{cfg: cfg, options: o, logger: logger, report: newDoctorReport()}
	if err := d.examine(ctx); err != nil {
		return err
	}
	r := d.report
	r.sort()
	show := r.text
	if o.json {
		show = r.json
	}
	if err := show(stdout, o.all); err != nil {
		return fmt.Errorf("print report: %w", err)
	}
	errs, warnings := r.count(severityError), r.count(severityWarn)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errs > 0:
		return fmt.Errorf("doctor: %s", counted(errs, "error"))
	case o.strict && warnings > 0:
		return fmt.Errorf("doctor: %s", counted(warnings, "warning"))
	}
	return nil
}

type doctor struct {
	cfg     config.Config
	options options
	logger  *slog.Logger
	report  *doctorReport

	prefill, decode []*examined  // what instances report about themselves
	pace            command.Pace // of the slowest stream of a pair
}

// examine runs every examination within the time limit. The error is a fault in this process.
func (d *doctor) examine(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.options.timeout)
	defer cancel()
	if err := d.survey(ctx); err != nil {
		return err
	}
	d.pairs(ctx)
	if d.options.through != "" {
		d.front(ctx)
	}
	if ctx.Err() != nil {
		d.report.found(whereDoctor, codeNotFinished, "it took longer than "+config.FormatDuration(d.options.timeout)+"; the rest was not examined")
	}
	return nil
}
