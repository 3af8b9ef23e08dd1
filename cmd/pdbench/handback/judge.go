package handback

import (
	"fmt"

	"carryover/cmd/pdbench/result"
)

const (
	rowOff       = "off"
	rowIdle      = "idle"
	rowNow       = "now"
	rowAnonymous = "anonymous"
	rowLateOff   = "off, 20 min"
	rowLate      = "idle, 20 min"
)

const (
	leastFall      = 0.90 // of pinned token-seconds, against off
	leastStreams   = 1.5  // times as many as with off
	ttftTolerance  = 1.10 // for p95, because runs differ
	leastAnonymous = 0.80 // of the hits of clients with ids
	leastRecalled  = 0.95 // of the KV of the turn twenty minutes before
	mostLegs       = 1.0  // for each turn
	mostBusy       = 0.02 // of prefill's computing
)

// judge returns the bars. It omits comparisons with a row that has not run.
func judge(rows map[string]*outcome) (bars []result.Bar) {
	for _, m := range modes() {
		r := rows[m.name]
		if r == nil {
			continue
		}
		bars = append(bars, r.sound()...)
		if off := rows[rowOff]; off != nil && !m.late && m.name != rowOff {
			bars = append(bars, r.against(off)...)
		}
	}
	if named, nameless := rows[rowIdle], rows[rowAnonymous]; named != nil && nameless != nil {
		bars = append(bars, result.Least(rowAnonymous, "tokens reused, of what clients with ids reuse,", nameless.hitRate()/max(named.hitRate(), 1e-9), leastAnonymous))
	}
	if late := rows[rowLate]; late != nil {
		bars = append(bars, result.Least(rowLate, "share of the turn before that was not computed, but for a block of each,", late.recalled(), leastRecalled))
	}
	return bars
}

// right returns the bars on faults of a row.
func (r *outcome) right() []result.Bar {
	name, what, failed := r.mode.name, "failed turns", r.turns.Failed()
	if len(failed) > 0 {
		what += fmt.Sprintf(" (the first: %v)", failed[0].Err)
	}
	return []result.Bar{
		result.Most(name, what, float64(len(failed)), 0),
		result.Least(name, "turns", float64(len(r.turns)), 1),
		result.Most(name, "wrong answers", float64(r.wrong()), 0),
		result.Most(name, "misuse", float64(r.counted.Misuse), 0),
	}
}

func (r *outcome) sound() []result.Bar {
	name := r.mode.name
	return append(r.right(),
		result.Most(name, "hand-backs that took a lease of prefill's", float64(r.counted.Leased), 0),
		result.Most(name, "preemptions", float64(r.counted.Preempted), 0),
		result.Most(name, "hand-backs for each turn", r.legsPerTurn(), mostLegs),
		result.Most(name, "share of hand-backs in what prefill computes", r.busyShare(), mostBusy),
	)
}

// against compares a row with off. For clients without ids it compares only what decode saves.
func (r *outcome) against(off *outcome) []result.Bar {
	name := r.mode.name
	bars := []result.Bar{
		result.Least(name, "fall of pinned token-seconds", 1-r.pinned/max(off.pinned, 1), leastFall),
		result.Least(name, "streams, times those of off,", r.streams()/max(off.streams(), 1), leastStreams),
	}
	if r.mode.anonymous {
		return bars
	}
	return append(bars,
		result.Least(name, "hit rate, where off's less one block of each prompt is the bound,", r.hitRate(), off.hitRate()-off.blockShare()),
		result.Most(name, "p95 of the time to the first token of next turns, where off's and a tenth is the bound,", r.ttft(0.95).Seconds(), ttftTolerance*off.ttft(0.95).Seconds()))
}
