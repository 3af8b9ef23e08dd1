package policies

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"carryover/cmd/pdbench/result"
	"carryover/cmd/pdbench/talk"
)

// options are the flags.
type options struct {
	binary        string
	policies      []string
	conversations int
	over          time.Duration // in which they begin, of engine time
	clock         talk.Clock
	seed          uint64
	smoke         bool
}

// limit bounds a report.
const limit = 8 * time.Minute

// Command prints the report that its arguments ask for. The code is that of the program's exit.
func Command(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	o := options{}
	set := flag.NewFlagSet("pdbench policies", flag.ContinueOnError)
	set.SetOutput(stderr)
	set.StringVar(&o.binary, "binary", "bin/carryover", "program to run")
	policies := set.String("policies", "auto,affinity,prefix,least_loaded,power_of_two,round_robin", "policies of both roles, the first also with instances killed")
	set.IntVar(&o.conversations, "conversations", 64, "conversations of four to six turns")
	set.DurationVar(&o.over, "over", 60*time.Second, "engine time in which they begin")
	set.Float64Var((*float64)(&o.clock), "scale", 10, "engine time per wall time")
	set.Uint64Var(&o.seed, "seed", 1, "of the conversations")
	set.BoolVar(&o.smoke, "smoke", false, "run the first policy briefly, with kills, and judge only that nothing goes wrong")
	if err := set.Parse(args); err != nil {
		return result.ExitUsage, err
	}
	o.policies = strings.Split(*policies, ",")
	if o.smoke {
		o.policies, o.conversations, o.over, o.clock = o.policies[:1], 12, 20*time.Second, 20
	}
	return result.Within(ctx, limit, "policies", func(ctx context.Context) error { return report(ctx, o, stdout) })
}

// report prints the table and returns what is not as it has to be.
func report(ctx context.Context, o options, out io.Writer) error {
	list := plan(o.seed, o.conversations, o.over)
	fmt.Fprintf(out, "%d conversations, %d turns, begun within %v; 4 prefill instances %s and 4 decode instances %s times as slow; engine time\n\n",
		len(list), talk.Turns(list), o.over, slownesses(prefillSlowness()), slownesses(decodeSlowness()))
	header(out)
	results := map[string]outcome{}
	var errs []error
	for _, policy := range o.policies {
		if o.smoke {
			break
		}
		r, err := run(ctx, o, policy, list, false)
		if err != nil {
			return fmt.Errorf("%s: %w", policy, err)
		}
		results[policy] = r
		r.print(out, policy)
		errs = append(errs, r.judge(policy))
	}
	killed, err := run(ctx, o, o.policies[0], list, true)
	if err != nil {
		return fmt.Errorf("%s with kills: %w", o.policies[0], err)
	}
	killed.print(out, o.policies[0]+", kills")
	fmt.Fprintf(out, "\nkilled and started again: %s; %d answers broke off with them, %d requests lost that had not reached them\n",
		strings.Join(killed.killed, " and "), len(killed.failed)-len(killed.lost()), len(killed.lost()))
	errs = append(errs, killed.judge(o.policies[0]+" with kills"), result.Failing(compare(results)))
	return errors.Join(errs...)
}

func slownesses(list []float64) string {
	texts := make([]string, len(list))
	for i, s := range list {
		texts[i] = fmt.Sprint(s)
	}
	return strings.Join(texts, ", ")
}
