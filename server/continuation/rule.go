package continuation

import (
	"math"
	"time"
)

// The rule: among the waits w, from zero to the life of a ticket, and the two ends, the choice has the least
//
//	cost(w) = Price · Pinned · E[min(τ, w)] + P(τ > w) · min(Leg, P(continued | τ > w) · Recompute)
//
// in seconds that prefill computes. τ is the time until the next turn, infinite if there is none. The first term is the worth of the blocks to decode
// while they are pinned. The second term follows if no turn has come: a leg hands the KV back, or the ticket is released, and prefill computes it
// again if a turn comes after all. A turn that uses the ticket ends both costs.
//
//	Price      (½ + share of decode's KV cache that is pinned) ÷ its size in tokens. If half of it is pinned, the default of
//	           release.pinned_share, all tokens of the cache together are worth as much as the engine: a second for each second. If nothing
//	           else is pinned, they are worth half of that.
//	Leg        what prefill computes in (128 + one block) tokens: the block that vLLM computes of each prompt, the 64 tokens below which it
//	           rather computes than reads (kv_recompute_threshold), and as much again for the place that the leg has in a step.
//	Recompute  what prefill computes in the tokens that it lacks: the answer and a quarter of the prompt, because without ticket and note the
//	           turn may go to another instance, or find its prompt evicted.
//
// A ticket that is kept for its whole life has no second term: decode frees its blocks by itself. Until Enough answers of a kind are known, a ticket
// waits for Terms.Unlearnt and is handed back.

// Fixed is the time without a next turn after which an answer counts as known.
const Fixed = 5 * time.Second

// Enough is how many answers of a kind have to be known.
const Enough = 8

// Without hand-backs a wrong release costs most, so more answers have to be known.
const (
	enoughToRelease = 64
	rarely          = 0.05 // the highest chance of a continuation
)

// End is what becomes of a ticket that no turn has used.
type End int

// The ends.
const (
	Keep     End = iota // it stays until its own end
	HandBack            // prefill reads its KV
	Release             // decode frees its blocks
)

// String returns the end's name in the log and in metrics.
func (e End) String() string {
	return [...]string{"ticket", "hand_back", "release"}[e]
}

// Choice is how long a ticket waits for its turn, and what becomes of it then.
type Choice struct {
	Wait   time.Duration
	End    End
	Learnt bool // from answers of its kind
}

// Now returns Keep if a turn may use the ticket, otherwise the end that follows at once.
func (c Choice) Now() End {
	if c.Wait > 0 {
		return Keep
	}
	return c.End
}

// Terms are the costs in the rule, in seconds that prefill computes.
type Terms struct {
	Price     float64 // of one pinned token for a second
	Pinned    int     // tokens of the ticket
	Leg       float64 // of a hand-back
	Recompute float64 // of the tokens that prefill lacks without a hand-back

	HandsBack, Releases bool          // the possible ends
	Unlearnt            time.Duration // the wait while not enough is known
}

// Assumptions about engines that don't report these.
const (
	usualPerToken = 100 * time.Microsecond
	usualKVTokens = 500_000
)

// Engines is what TermsOf reads of the engines.
type Engines struct {
	PerToken     time.Duration // prefill's time for a token of a prompt, 0 if unknown
	KVTokens     int           // size of decode's KV cache, 0 if unknown
	PinnedTokens int           // pinned tokens in it
	BlockSize    int
}

const (
	idlePrice   = 0.5 // of the whole cache for a second, if nothing is pinned
	pinnedPrice = 1.0 // added for the pinned share of the cache
	legTokens   = 128
	lostShare   = 0.25 // of the prompt
)

// TermsOf returns the terms for a ticket of tokens, the first promptTokens of them computed by prefill.
func TermsOf(e Engines, tokens, promptTokens int) Terms {
	perToken, cache := e.PerToken.Seconds(), float64(e.KVTokens)
	if perToken <= 0 {
		perToken = usualPerToken.Seconds()
	}
	if cache <= 0 {
		cache = usualKVTokens
	}
	share := min(1, max(0, float64(e.PinnedTokens)/cache))
	prompt := min(max(0, promptTokens), tokens)
	return Terms{
		Price: (idlePrice + pinnedPrice*share) / cache, Pinned: tokens,
		Leg:       perToken * float64(legTokens+e.BlockSize),
		Recompute: perToken * (float64(tokens-prompt) + lostShare*float64(prompt)),
	}
}

// Least returns the choice that costs least. Among equals it prefers the shortest wait, and a release to a hand-back.
func (t Terms) Least(c *Curve) Choice {
	switch {
	case !t.HandsBack && !t.Releases:
		return Choice{End: Keep}
	case !t.HandsBack:
		return t.releaseOrKeep(c)
	case c.Known < Enough:
		return Choice{Wait: t.Unlearnt, End: HandBack}
	}
	best, least := Choice{}, math.Inf(1)
	for i, wait := range c.waits {
		if cost, end := t.cost(c, i); cost < least {
			best, least = Choice{Wait: wait, End: end, Learnt: true}, cost
		}
	}
	return best
}

// releaseOrKeep releases a ticket at once if its answer is almost certainly not continued.
func (t Terms) releaseOrKeep(c *Curve) Choice {
	if c.Known < enoughToRelease || c.later(0) > rarely {
		return Choice{End: Keep}
	}
	choice := Choice{End: Keep, Learnt: true}
	keep, _ := t.cost(c, len(c.waits)-1)
	if release, end := t.cost(c, 0); release < keep {
		choice.End = end
	}
	return choice
}

// cost returns the cost of a wait and its cheaper end.
func (t Terms) cost(c *Curve, i int) (cost float64, end End) {
	pinned := t.Price * float64(t.Pinned) * c.pinnedFor(i)
	if i == len(c.waits)-1 {
		return pinned, Keep
	}
	handBack, release := c.left[i]*t.Leg, c.later(i)*t.Recompute
	cost, end = handBack, HandBack
	if t.Releases && (release <= handBack || !t.HandsBack) {
		cost, end = release, Release
	}
	return pinned + cost, end
}
