package policies

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"carryover/cmd/pdbench/fleet"
	"carryover/cmd/pdbench/result"
	"carryover/cmd/pdbench/talk"
)

// What auto has to reach.
const (
	ttftAgainstRoundRobin = 0.75
	hitsBelowAffinity     = 0.03
)

// outcome is what one run showed.
type outcome struct {
	clock           talk.Clock
	turns           talk.Record
	shares          []float64 // of the turns that each prefill instance had, by its place
	failed          []failure
	corrupt, double int

	killedAt time.Time
	victims  []*fleet.Engine
	killed   []string // their names
}

// failure is a turn that its client did not get.
type failure struct {
	talk.Turn
	reached bool // a killed instance
}

// account adds what the proxy's log says of the turns.
func (r *outcome) account(prefill []*fleet.Engine, lines map[string]turnLine) {
	counts, total := make([]int, len(prefill)), 0
	for i, e := range prefill {
		for _, t := range r.turns {
			if e.Is(lines[t.ID].Prefill) {
				counts[i]++
				total++
			}
		}
	}
	for _, n := range counts {
		r.shares = append(r.shares, result.Share(n, total))
	}
	for _, e := range r.victims {
		r.killed = append(r.killed, e.Name)
	}
	for _, t := range r.turns.Failed() {
		r.failed = append(r.failed, failure{t, r.reached(t, lines[t.ID])})
	}
}

// reached reports whether a failed turn was under way on a killed instance: it began before the kill, and its last leg of that role went
// to the instance and was not refused, as one is that comes after the end.
func (r *outcome) reached(t talk.Turn, line turnLine) bool {
	if !t.Began.Before(r.killedAt) || strings.Contains(line.Error, "refused") {
		return false
	}
	return slices.ContainsFunc(r.victims, func(e *fleet.Engine) bool { return e.Is(line.Prefill) || e.Is(line.Decode) })
}

func (r *outcome) lost() (list []failure) {
	for _, f := range r.failed {
		if !f.reached {
			list = append(list, f)
		}
	}
	return list
}

// ttft is a percentile of the times to the first token.
func (r *outcome) ttft(share float64) time.Duration { return r.turns.TTFT(r.clock, share, false) }

func header(out io.Writer) {
	fmt.Fprintf(out, "%-20s %8s %8s %8s  %8s  %-28s %6s %7s %6s\n", "policy", "p50 s", "p95 s", "p99 s", "hits", "turns of each prefill", "failed", "corrupt", "double")
}

func (r *outcome) print(out io.Writer, name string) {
	var shares []string
	for _, s := range r.shares {
		shares = append(shares, fmt.Sprintf("%4.1f %%", 100*s))
	}
	fmt.Fprintf(out, "%-20s %8.2f %8.2f %8.2f  %6.1f %%  %-28s %6d %7d %6d\n", name, r.ttft(0.5).Seconds(), r.ttft(0.95).Seconds(), r.ttft(0.99).Seconds(),
		100*r.turns.Hits(), strings.Join(shares, "  "), len(r.failed), r.corrupt, r.double)
}

// judge says what is wrong with a run by itself.
func (r *outcome) judge(name string) error {
	var errs []error
	if r.corrupt+r.double > 0 {
		errs = append(errs, fmt.Errorf("%s: %d corrupt and %d double reads", name, r.corrupt, r.double))
	}
	for _, f := range r.lost() {
		errs = append(errs, fmt.Errorf("%s: turn %s is lost: %w", name, f.ID, f.Err))
	}
	return errors.Join(errs...)
}

// compare holds auto against the other policies, as far as they have run.
func compare(results map[string]outcome) (bars []result.Bar) {
	auto, ok := results["auto"]
	if !ok {
		return nil
	}
	if other, ok := results["round_robin"]; ok {
		most := time.Duration(ttftAgainstRoundRobin * float64(other.ttft(0.95)))
		bars = append(bars, result.Most("auto", "p95 of the time to the first token, where a share of round robin's is the bound,", auto.ttft(0.95).Seconds(), most.Seconds()))
	}
	if other, ok := results["affinity"]; ok {
		bars = append(bars, result.Least("auto", "hit rate, where three points below affinity's are the bound,", auto.turns.Hits(), other.turns.Hits()-hitsBelowAffinity))
	}
	return bars
}
