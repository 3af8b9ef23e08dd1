package handback

import (
	"fmt"
	"io"
	"time"

	"carryover/cmd/pdbench/fleet"
	"carryover/cmd/pdbench/result"
	"carryover/cmd/pdbench/talk"
)

type outcome struct {
	mode     mode
	clock    talk.Clock
	turns    talk.Record
	capacity int     // of decode's KV caches, in tokens
	pinned   float64 // token-seconds of engine time
	span     time.Duration
	counted  fleet.Counts
	late     result.Samples // how late this process woke, in wall time
	firsts   *fleet.Counts  // counts until the first turns of late conversations had ended
}

func (r *outcome) wrong() (n int) {
	for _, s := range r.turns {
		if s.Wrong {
			n++
		}
	}
	return n
}

// ttft returns a percentile of the times to the first token of next turns, in engine time.
func (r *outcome) ttft(share float64) time.Duration {
	var times result.Samples
	for _, t := range r.turns {
		if t.Err == nil && t.Next {
			times = append(times, t.TTFT)
		}
	}
	return r.clock.Engine(result.Merge(times).At(share))
}

// lag returns the 95th percentile of how late this process's timers were, in engine time. Lower latencies say more about the machine than
// about the engines.
func (r *outcome) lag() time.Duration { return r.clock.Engine(result.Merge(r.late).At(0.95)) }

// hitRate returns the share of the turns' prompt tokens that prefill did not compute.
func (r *outcome) hitRate() float64 {
	return 1 - result.Share(r.counted.Computed, r.counted.Prompt)
}

// streamTokens returns the mean number of tokens that a stream holds in decode at its end.
func (r *outcome) streamTokens() float64 {
	tokens := 0
	for _, s := range r.turns {
		tokens += s.Prompt + s.Answer
	}
	return result.Share(tokens, len(r.turns))
}

// streams returns how many such streams fit into decode beside the mean of the pinned tokens.
func (r *outcome) streams() float64 {
	pinned := r.pinned / max(r.span.Seconds(), 1)
	return max(0, float64(r.capacity)-pinned) / max(r.streamTokens(), 1)
}

func (r *outcome) legsPerTurn() float64 { return result.Share(r.counted.HandBacks, len(r.turns)) }

// busyShare returns the hand-backs' share of the time that prefill computes. Each token takes the same time.
func (r *outcome) busyShare() float64 {
	return result.Share(r.counted.HandBackComputed, r.counted.HandBackComputed+r.counted.Computed)
}

// blockShare returns one block of every prompt as a share of all prompt tokens.
func (r *outcome) blockShare() float64 { return result.Share(len(r.turns)*blockSize, r.counted.Prompt) }

// recalled returns, for late next turns, the share of the previous turns' tokens that prefill did not compute. One block of each turn does
// not count.
func (r *outcome) recalled() float64 {
	if r.firsts == nil {
		return 0
	}
	next, history := r.counted.Since(*r.firsts), 0
	for _, s := range r.turns {
		if s.Next {
			history += s.Before - blockSize
		}
	}
	return result.Share(next.Prompt-next.Computed, history)
}

func header(out io.Writer) {
	fmt.Fprintf(out, "%-13s %9s %7s %8s %7s %10s %7s %7s %7s %6s %7s %6s %7s %7s\n", "row", "pinned", "fall", "streams", "hits", "hit turns", "p50 s", "p95 s", "lag s", "legs",
		"busy", "wrong", "misuse", "failed")
}

func (r *outcome) print(out io.Writer, off *outcome) {
	fall := "-"
	if off != nil && off != r && !r.mode.late {
		fall = fmt.Sprintf("%.1f %%", 100*(1-r.pinned/max(off.pinned, 1)))
	}
	fmt.Fprintf(out, "%-13s %9.2f %7s %8.0f %5.1f %% %8.1f %% %7.3f %7.3f %7.3f %6.2f %5.2f %% %6d %7d %7d\n", r.mode.name, r.pinned/1e6, fall, r.streams(), 100*r.hitRate(),
		100*r.turns.Hits(), r.ttft(0.5).Seconds(), r.ttft(0.95).Seconds(), r.lag().Seconds(), r.legsPerTurn(), 100*r.busyShare(), r.wrong(), r.counted.Misuse, len(r.turns.Failed()))
}
