package keep

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"time"

	"carryover/cmd/pdbench/fleet"
	"carryover/cmd/pdbench/result"
	"carryover/cmd/pdbench/talk"
)

// options are the flags.
type options struct {
	binary    string
	workloads []string // all if there is none
	clock     talk.Clock
	warm      time.Duration // for which nothing counts, of engine time
	long      time.Duration // for which everything does
	seed      uint64
	smoke     bool
}

// limit bounds a report.
const limit = 30 * time.Minute

// Command prints the report that its arguments ask for. The code is that of the program's exit.
func Command(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	o := options{}
	set := flag.NewFlagSet("pdbench keep", flag.ContinueOnError)
	set.SetOutput(stderr)
	set.StringVar(&o.binary, "binary", "bin/carryover", "program to run")
	set.Func("workload", "workload to run, may be given more than once; all unless given", o.addWorkload)
	set.Float64Var((*float64)(&o.clock), "scale", 10, "engine time per wall time")
	set.DurationVar(&o.warm, "warm", 450*time.Second, "engine time before anything counts: the life of a ticket at least, so that what is kept for it counts in full")
	set.DurationVar(&o.long, "long", 700*time.Second, "engine time that counts")
	set.Uint64Var(&o.seed, "seed", 1, "of the conversations")
	set.BoolVar(&o.smoke, "smoke", false, "run a workload briefly, and judge only that nothing goes wrong")
	if err := set.Parse(args); err != nil {
		return result.ExitUsage, err
	}
	if o.smoke {
		o.workloads, o.warm, o.long = []string{"mixed"}, 20*time.Second, 40*time.Second
	}
	return result.Within(ctx, limit, "keep", func(ctx context.Context) error { return report(ctx, o, stdout, stderr) })
}

// addWorkload adds a workload that is to run.
func (o *options) addWorkload(name string) error {
	if !slices.ContainsFunc(workloads(), func(w workload) bool { return w.name == name }) {
		return fmt.Errorf("there is no workload %q", name)
	}
	o.workloads = append(o.workloads, name)
	return nil
}

// report prints the table and returns what is not as it has to be.
func report(ctx context.Context, o options, out, progress io.Writer) error {
	preface(out, o)
	var bars []result.Bar
	var wrong []error
	for _, w := range workloads() {
		if len(o.workloads) > 0 && !slices.Contains(o.workloads, w.name) {
			continue
		}
		began := time.Now()
		results, err := run(ctx, o, w, progress)
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		for _, p := range policies() {
			results[p.name].row(out, w.name, p.name)
			wrong = append(wrong, result.Failing(results[p.name].right(w.name+", "+p.name)))
		}
		if !o.smoke {
			bars = append(bars, judge(w.name, results)...)
		}
		fmt.Fprintf(progress, "%s took %v\n", w.name, time.Since(began).Round(time.Second))
	}
	fmt.Fprintf(out, "\n")
	for _, b := range bars {
		fmt.Fprintf(out, "%s\n", b)
	}
	return errors.Join(append(wrong, result.Failing(bars))...)
}

func preface(out io.Writer, o options) {
	fmt.Fprintf(out, `Conversations without ids, counted for %v behind %v of warm-up; %d + %d engines for each policy, a prompt token takes %v, a token of an answer
%v; engine time, %g times the wall clock's, and so are the waits of the policies. A decode engine has %d blocks, a prefill engine %d, of %d tokens.

pinned   token-seconds that finished answers pinned decode's blocks for, in millions
hits     prompt tokens of turns that prefill did not compute, its own cache and what it read of decode together
prefill  tokens that it computed, and %d for each hand-back, at its speed
legs     hand-backs for each turn
total    prefill, and the price of what was pinned: of a token for a second (½ + pinned share of decode's cache) ÷ its size

`, o.long, o.warm, engines, engines, fleet.PrefillPerToken, fleet.InterToken, float64(o.clock), decodeBlocks, prefillBlocks, blockSize, legTokens)
	header(out)
}
