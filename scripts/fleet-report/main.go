// Fleet-report shows what picking instances is worth. It runs four prefill and four decode instances of unequal speed, simulated, and
// the proxy, each a process of its own on loopback, holds the same conversations through them with one policy after the other, and prints
// the time to the first token in the clock of the engines, the hit rate, and which prefill instance got how much. Then it does so once
// more with the first policy, kills one instance of each role in the middle, and starts it again.
//
// It exits 1 if auto is not a quarter faster than round robin in the 95th percentile, if its hit rate is more than three points below
// that of affinity, if any KV was read wrongly or twice, or if a request is lost that had not reached a killed instance.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// options are the flags.
type options struct {
	binary        string
	policies      []string
	conversations int
	over          time.Duration // in which they begin, of engine time
	scale         float64       // how much faster than the wall clock engines run
	seed          uint64
}

func main() {
	o := options{}
	flag.StringVar(&o.binary, "binary", "bin/carryover", "program to run")
	policies := flag.String("policies", "auto,affinity,prefix,least_loaded,power_of_two,round_robin", "policies of both roles, the first also with instances killed")
	flag.IntVar(&o.conversations, "conversations", 64, "conversations of four to six turns")
	flag.DurationVar(&o.over, "over", 60*time.Second, "engine time in which they begin")
	flag.Float64Var(&o.scale, "scale", 10, "engine time per wall time")
	flag.Uint64Var(&o.seed, "seed", 1, "of the conversations")
	flag.Parse()
	o.policies = strings.Split(*policies, ",")
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	if err := report(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fleet-report:", err)
		os.Exit(1)
	}
}

// report prints the table and returns what is not as it has to be.
func report(ctx context.Context, o options, out io.Writer) error {
	talk := plan(o.seed, o.conversations, o.over)
	fmt.Fprintf(out, "%d conversations, %d turns, begun within %v; 4 prefill instances %s and 4 decode instances %s times as slow; engine time\n\n",
		len(talk), turns(talk), o.over, slownesses(prefillSlowness()), slownesses(decodeSlowness()))
	header(out)
	results := map[string]result{}
	var errs []error
	for _, policy := range o.policies {
		r, err := run(ctx, o, policy, talk, false)
		if err != nil {
			return fmt.Errorf("%s: %w", policy, err)
		}
		results[policy] = r
		r.print(out, policy)
		errs = append(errs, r.judge(policy))
	}
	killed, err := run(ctx, o, o.policies[0], talk, true)
	if err != nil {
		return fmt.Errorf("%s with kills: %w", o.policies[0], err)
	}
	killed.print(out, o.policies[0]+", kills")
	fmt.Fprintf(out, "\nkilled and started again: %s; %d answers broke off with them, %d requests lost that had not reached them\n",
		strings.Join(killed.killed, " and "), len(killed.failed)-len(killed.lost()), len(killed.lost()))
	errs = append(errs, killed.judge(o.policies[0]+" with kills"), compare(results))
	return errors.Join(errs...)
}

func slownesses(list []float64) string {
	texts := make([]string, len(list))
	for i, s := range list {
		texts[i] = fmt.Sprint(s)
	}
	return strings.Join(texts, ", ")
}
