// Handback-report shows what handing KV back to prefill is worth. It runs four prefill and four decode engines, simulated, in this
// process and the proxy as a process of its own, holds the same conversations through them with each mode of --hand-back, and prints
// what decode's KV cache was pinned for, what was computed again, how long next turns took to their first token, and what the
// hand-backs cost, all in the clock of the engines. Then it does so with turns that come twenty minutes after the turn before.
//
// It exits 1 if one of the bars in judge.go does not hold, if a turn fails, if an answer is not the one that was ordered, or if an
// engine has read anything that it should not have.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are the flags.
type options struct {
	binary        string
	rows          string
	conversations int
	over          time.Duration // in which they begin, of engine time
	scale         float64       // how much faster than the wall clock engines run
	laterScale    float64       // the same where turns come late
	decodeBlocks  int           // of one decode engine, for each conversation
	prefillBlocks int
	seed          uint64
}

// mode is one row of the table.
type mode struct {
	name      string
	handBack  string // --hand-back
	anonymous bool   // clients name no conversation
	late      bool   // next turns come after twenty minutes
}

func modes() []mode {
	return []mode{
		{name: rowOff, handBack: "off"},
		{name: rowIdle, handBack: "idle"},
		{name: rowNow, handBack: "now"},
		{name: rowAnonymous, handBack: "idle", anonymous: true},
		{name: rowLateOff, handBack: "off", late: true},
		{name: rowLate, handBack: "idle", late: true},
	}
}

func main() {
	o := options{}
	flag.StringVar(&o.binary, "binary", "bin/carryover", "program to run")
	flag.StringVar(&o.rows, "rows", "", "rows to run, separated by commas; all unless given")
	flag.IntVar(&o.conversations, "conversations", 2000, "conversations of three turns")
	flag.DurationVar(&o.over, "over", 450*time.Second, "engine time in which they begin")
	flag.Float64Var(&o.scale, "scale", 8, "engine time per wall time")
	flag.Float64Var(&o.laterScale, "later-scale", 40, "the same for turns after twenty minutes, of a quarter of the conversations")
	flag.IntVar(&o.decodeBlocks, "decode-blocks", 26, "blocks of one decode engine for each of the conversations, so that off pins nearly what its budget allows")
	flag.IntVar(&o.prefillBlocks, "prefill-blocks", 131072, "blocks of one prefill engine")
	flag.Uint64Var(&o.seed, "seed", 1, "of the conversations")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
	defer cancel()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM) // the proxy ends, too
	defer stop()
	if err := report(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "handback-report:", err)
		os.Exit(1)
	}
}

// report prints the table and returns what is not as it has to be.
func report(ctx context.Context, o options, out io.Writer) error {
	wanted := strings.Split(o.rows, ",")
	rows := map[string]*result{}
	preface(out, o)
	for _, m := range modes() {
		if o.rows != "" && !slices.Contains(wanted, m.name) {
			continue
		}
		began := time.Now()
		r, err := run(ctx, o, m)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		rows[m.name] = r
		r.print(out, rows[rowOff])
		fmt.Fprintf(os.Stderr, "%s took %v\n", m.name, time.Since(began).Round(time.Second))
	}
	bars := judge(rows)
	fmt.Fprintf(out, "\n")
	var errs []error
	for _, b := range bars {
		fmt.Fprintf(out, "%s\n", b)
		if !b.holds {
			errs = append(errs, errors.New(b.String()))
		}
	}
	return errors.Join(errs...)
}

func preface(out io.Writer, o options) {
	fmt.Fprintf(out, `%d conversations of %d turns, begun within %v; 4 + 4 engines, a prompt token takes %v, a token of an answer %v; engine time, %g times the
wall clock's. Clients think for %v in the median, %v at most. A prefill engine has %d blocks, a decode engine %d, of %d tokens. In the
rows of 20 min, %d conversations of 2 turns, %g times. Prefill caches whole blocks, so that a block of each prompt is allowed for in hits.

pinned   token-seconds that finished answers pinned decode's blocks for, in millions
streams  that decode's KV cache has room for beside what is pinned in the mean, of this row's mean size
hits     prompt tokens of turns that prefill did not compute, its own cache and what it read of decode together
hit turns  next turns whose record says hit
p50, p95 of the time to the first token, of next turns
lag      p95 of how late timers are here: where it is no small part of p95, the machine is too busy for that bar
legs     hand-backs for each turn
busy     share of hand-backs in what prefill computed
misuse   corrupt, poisoned, double, expired, unknown or uneven reads, and reads under another salt

`, o.conversations, turnsEach, o.over, prefillPerToken, interToken, o.scale, usualThink, longestThink, o.prefillBlocks, o.blocksOfDecode(), blockSize,
		o.lateConversations(), o.laterScale)
	header(out)
}
