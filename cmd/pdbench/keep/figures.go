package keep

import (
	"fmt"
	"io"
	"time"

	"carryover/cmd/pdbench/fleet"
	"carryover/cmd/pdbench/result"
	"carryover/cmd/pdbench/talk"
)

// legTokens is what a hand-back costs prefill beside the tokens that it computes, as docs/operating.md has it: its place in a step.
const legTokens = 128

// figures are what one policy costs behind the warm-up.
type figures struct {
	perToken time.Duration // that prefill takes
	turns    talk.Record   // those that began behind the warm-up, and failed ones
	counted  fleet.Counts
	pinned   float64 // token-seconds
	price    float64 // of what was pinned, in seconds of prefill
}

// pin adds what an engine's pins have held during a time.
func (f *figures) pin(tokenSeconds float64, during time.Duration) {
	const cache = decodeBlocks * blockSize
	share := min(1, tokenSeconds/cache/max(during.Seconds(), 1e-9))
	f.pinned += tokenSeconds
	f.price += (idlePrice + pinnedPrice*share) / cache * tokenSeconds
}

// hits is the share of the prompt tokens of turns that prefill did not compute.
func (f *figures) hits() float64 { return 1 - result.Share(f.counted.Computed, f.counted.Prompt) }

// prefill is how long prefill computed, in seconds.
func (f *figures) prefill() float64 {
	return f.perToken.Seconds() * float64(f.counted.Computed+f.counted.HandBackComputed+f.counted.HandBacks*legTokens)
}

// legs is the hand-backs for each turn.
func (f *figures) legs() float64 { return result.Share(f.counted.HandBacks, len(f.turns)) }

// total is what all of it costs, in seconds of prefill.
func (f *figures) total() float64 { return f.price + f.prefill() }

func header(out io.Writer) {
	fmt.Fprintf(out, "%-9s %-16s %6s %11s %8s %10s %6s %8s\n", "workload", "policy", "turns", "pinned Mts", "hits", "prefill s", "legs", "total s")
}

// row prints a row of the table.
func (f *figures) row(out io.Writer, workload, policy string) {
	fmt.Fprintf(out, "%-9s %-16s %6d %11.3f %6.1f %% %10.1f %6.2f %8.1f\n", workload, policy, len(f.turns), f.pinned/1e6, 100*f.hits(), f.prefill(), f.legs(), f.total())
}
