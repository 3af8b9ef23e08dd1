package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// result is what one row showed.
type result struct {
	mode     mode
	scale    float64
	spoken   []spoken
	capacity int     // of decode's KV caches, in tokens
	pinned   float64 // token-seconds of engine time
	span     time.Duration
	counted  counted
	late     []time.Duration // by which this process woke late, in wall time
	firsts   *counted        // until the first turns of late conversations had ended
}

// failed returns the first error of a turn, and how many there are.
func (r *result) failed() (n int, first error) {
	for _, s := range r.spoken {
		if s.err != nil {
			if first == nil {
				first = s.err
			}
			n++
		}
	}
	return n, first
}

func (r *result) wrong() (n int) {
	for _, s := range r.spoken {
		if s.wrong {
			n++
		}
	}
	return n
}

// ttft is a percentile of the times to the first token of next turns, of engine time: the smallest that so large a share did not exceed.
func (r *result) ttft(share float64) time.Duration {
	var times []time.Duration
	for _, s := range r.spoken {
		if s.err == nil && s.next {
			times = append(times, s.ttft)
		}
	}
	return r.percentile(times, share)
}

// lag is by how much timers of this process were late in 95 of 100 cases, of engine time. Latencies below it say more of the machine
// than of the engines.
func (r *result) lag() time.Duration { return r.percentile(slices.Clone(r.late), 0.95) }

// percentile sorts wall times, and returns the engine time of one.
func (r *result) percentile(times []time.Duration, share float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	at := max(0, int(math.Ceil(share*float64(len(times))))-1)
	return time.Duration(float64(times[at]) * r.scale)
}

// hitRate is the share of the prompt tokens of turns that prefill did not compute.
func (r *result) hitRate() float64 {
	return 1 - share(r.counted.computed, r.counted.prompt)
}

// hitTurns is the share of next turns whose record says that something was reused.
func (r *result) hitTurns() float64 {
	hits, of := 0, 0
	for _, s := range r.spoken {
		if s.next && s.err == nil {
			of++
			if strings.HasPrefix(s.reuse, "hit") {
				hits++
			}
		}
	}
	return share(hits, of)
}

// streamTokens is how many tokens a stream holds in decode at its end, in the mean.
func (r *result) streamTokens() float64 {
	tokens := 0
	for _, s := range r.spoken {
		tokens += s.prompt + s.answer
	}
	return share(tokens, len(r.spoken))
}

// streams is how many of these fit beside what is pinned in the mean.
func (r *result) streams() float64 {
	pinned := r.pinned / max(r.span.Seconds(), 1)
	return max(0, float64(r.capacity)-pinned) / max(r.streamTokens(), 1)
}

func (r *result) legsPerTurn() float64 { return share(r.counted.handBacks, len(r.spoken)) }

// busyShare is the share of hand-backs in the time for which prefill computes, which is the same for every token.
func (r *result) busyShare() float64 {
	return share(r.counted.handBackComputed, r.counted.handBackComputed+r.counted.computed)
}

// blockShare is one block of every prompt, as a share of all prompt tokens.
func (r *result) blockShare() float64 { return share(len(r.spoken)*blockSize, r.counted.prompt) }

// recalled says of late next turns how much of the turns before prefill did not compute, but for one block of each.
func (r *result) recalled() float64 {
	if r.firsts == nil {
		return 0
	}
	next, history := r.counted.since(*r.firsts), 0
	for _, s := range r.spoken {
		if s.next {
			history += s.before - blockSize
		}
	}
	return share(next.prompt-next.computed, history)
}

func share(part, whole int) float64 { return float64(part) / float64(max(whole, 1)) }

func header(out io.Writer) {
	fmt.Fprintf(out, "%-13s %9s %7s %8s %7s %10s %7s %7s %7s %6s %7s %6s %7s %7s\n", "row", "pinned", "fall", "streams", "hits", "hit turns", "p50 s", "p95 s", "lag s", "legs",
		"busy", "wrong", "misuse", "failed")
}

// print prints the row, beside what off has pinned.
func (r *result) print(out io.Writer, off *result) {
	fall := "-"
	if off != nil && off != r && !r.mode.late {
		fall = fmt.Sprintf("%.1f %%", 100*(1-r.pinned/max(off.pinned, 1)))
	}
	failed, _ := r.failed()
	fmt.Fprintf(out, "%-13s %9.2f %7s %8.0f %5.1f %% %8.1f %% %7.3f %7.3f %7.3f %6.2f %5.2f %% %6d %7d %7d\n", r.mode.name, r.pinned/1e6, fall, r.streams(), 100*r.hitRate(),
		100*r.hitTurns(), r.ttft(0.5).Seconds(), r.ttft(0.95).Seconds(), r.lag().Seconds(), r.legsPerTurn(), 100*r.busyShare(), r.wrong(), r.counted.misuse, failed)
}
