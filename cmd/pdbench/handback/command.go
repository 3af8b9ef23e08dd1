package handback

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"time"

	"carryover/cmd/pdbench/fleet"
	"carryover/cmd/pdbench/result"
	"carryover/cmd/pdbench/talk"
)

type options struct {
	binary        string
	rows          []string // empty means all
	conversations int
	over          time.Duration // engine time in which the conversations begin
	clock         talk.Clock
	smoke         bool
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

// limit bounds the duration of a report.
const limit = 30 * time.Minute

// Command prints the report that its arguments ask for, and returns the exit code.
func Command(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	o := options{}
	set := flag.NewFlagSet("pdbench handback", flag.ContinueOnError)
	set.SetOutput(stderr)
	set.StringVar(&o.binary, "binary", "bin/carryover", "program to run")
	set.Func("row", "row to run, may be given more than once; all unless given", o.addRow)
	set.IntVar(&o.conversations, "conversations", 2000, "conversations of three turns")
	set.DurationVar(&o.over, "over", 450*time.Second, "engine time in which they begin")
	set.Float64Var((*float64)(&o.clock), "scale", 8, "engine time per wall time, where turns do not come late")
	set.BoolVar(&o.smoke, "smoke", false, "run a row briefly, and judge only that nothing goes wrong")
	if err := set.Parse(args); err != nil {
		return 0, err
	}
	if o.smoke {
		o.rows, o.conversations, o.over, o.clock = []string{rowIdle}, 40, 60*time.Second, 40
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := report(ctx, o, stdout, stderr); err != nil {
		return result.ExitFailed, fmt.Errorf("handback: %w", err)
	}
	return result.ExitOK, nil
}

func (o *options) addRow(name string) error {
	if !slices.ContainsFunc(modes(), func(m mode) bool { return m.name == name }) {
		return fmt.Errorf("there is no row %q", name)
	}
	o.rows = append(o.rows, name)
	return nil
}

// report prints the table and returns an error for each bar that does not hold.
func report(ctx context.Context, o options, out, progress io.Writer) error {
	rows := map[string]*outcome{}
	preface(out, o)
	for _, m := range modes() {
		if len(o.rows) > 0 && !slices.Contains(o.rows, m.name) {
			continue
		}
		began := time.Now()
		r, err := run(ctx, o, m, progress)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		rows[m.name] = r
		r.print(out, rows[rowOff])
		fmt.Fprintf(progress, "%s took %v\n", m.name, time.Since(began).Round(time.Second))
	}
	bars := judge(rows)
	if o.smoke {
		bars = rows[rowIdle].right()
	}
	fmt.Fprintf(out, "\n")
	for _, b := range bars {
		fmt.Fprintf(out, "%s\n", b)
	}
	return result.Failing(bars)
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

`, o.conversations, turnsEach, o.over, fleet.PrefillPerToken, fleet.InterToken, float64(o.clock), usualThink, longestThink, prefillBlocks, o.blocksOfDecode(), blockSize,
		o.lateConversations(), float64(lateClock))
	header(out)
}
