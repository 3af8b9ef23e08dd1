package continuation

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

const life = 450 * time.Second

// curveOf is what is known of a kind of whose answers a share is continued, at times that are spread by a cumulative distribution.
func curveOf(share float64, by func(t time.Duration) float64) *Curve {
	c := &Curve{Known: 100, waits: waitsTo(life)}
	for i, wait := range c.waits {
		c.left[i] = 1 - share*by(wait)
	}
	c.left[0], c.left[len(c.waits)-1] = 1, 1-share
	return c
}

// within spreads times evenly in their logarithm between two times.
func within(from, to time.Duration) func(time.Duration) float64 {
	return func(t time.Duration) float64 {
		return min(1, max(0, math.Log(float64(t)/float64(from))/math.Log(float64(to)/float64(from))))
	}
}

func both(e Engines, tokens, prompt int) Terms {
	t := TermsOf(e, tokens, prompt)
	t.HandsBack, t.Releases, t.Unlearnt = true, true, 5*time.Second
	return t
}

func TestLeast(t *testing.T) {
	idle := Engines{PerToken: 100 * time.Microsecond, KVTokens: 1_000_000, BlockSize: 16}
	full := idle
	full.PinnedTokens = 500_000
	seconds, minute, never := within(time.Second, 4*time.Second), within(20*time.Second, 90*time.Second), curveOf(0, within(1, 2))
	for name, c := range map[string]struct {
		terms Terms
		curve *Curve
		want  Choice
	}{
		"nothing known":              {both(idle, 2000, 1800), &Curve{}, Choice{Wait: 5 * time.Second, End: HandBack}},
		"never continued":            {both(idle, 2000, 1500), never, Choice{End: Release, Learnt: true}},
		"tool loops":                 {both(idle, 8000, 7900), curveOf(0.97, seconds), Choice{Wait: 5 * time.Second, End: Release, Learnt: true}},
		"tool loops on a full cache": {both(full, 30_000, 29_000), curveOf(0.97, seconds), Choice{End: HandBack, Learnt: true}},
		"chats":                      {both(idle, 4000, 3700), curveOf(0.75, minute), Choice{End: HandBack, Learnt: true}},
		"chats that leave little":    {both(idle, 150, 140), curveOf(0.2, minute), Choice{End: Release, Learnt: true}},
		"room and little to hold":    {both(Engines{PerToken: time.Millisecond, KVTokens: 4_000_000}, 200, 50), curveOf(0.97, minute), Choice{Wait: 100 * time.Second, End: Release, Learnt: true}},
	} {
		if got := c.terms.Least(c.curve); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

// Where nothing can be handed back, only what is certain enough is released.
func TestLeast_WithoutHandBack(t *testing.T) {
	terms := both(Engines{}, 2000, 1500)
	terms.HandsBack = false
	late := within(20*time.Second, 90*time.Second)
	known := func(n int, share float64) *Curve {
		c := curveOf(share, late)
		c.Known = n
		return c
	}
	for name, c := range map[string]struct {
		curve *Curve
		want  End
	}{
		"nothing known": {&Curve{}, Keep}, "few": {known(63, 0), Keep}, "none of many": {known(64, 0), Release},
		"rarely": {known(1000, 0.04), Release}, "sometimes": {known(1000, 0.06), Keep},
	} {
		if got := terms.Least(c.curve); got.End != c.want || got.Wait != 0 {
			t.Errorf("%s: got %+v, want %v", name, got, c.want)
		}
	}
	terms.Releases = false
	if got := terms.Least(known(1000, 0)); got.End != Keep {
		t.Errorf("without release: got %+v", got)
	}
}

// With the same ends a higher chance of a continuation never shortens the wait; a higher price and more tokens never lengthen it; and no
// other choice costs less.
func TestLeast_IsMonotone(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		from := time.Duration(float64(50*time.Millisecond) * math.Exp(6*draw.Float64()))
		by := within(from, from*time.Duration(2+draw.IntN(50)))
		e := Engines{
			PerToken: time.Duration(math.Exp(draw.Float64()*5) * float64(10*time.Microsecond)), KVTokens: 50_000 + draw.IntN(2_000_000), BlockSize: 16,
		}
		e.PinnedTokens = draw.IntN(e.KVTokens)
		tokens := 1 + draw.IntN(50_000)
		prompt, share := draw.IntN(tokens+1), draw.Float64()
		terms, curve := both(e, tokens, prompt), curveOf(share, by)
		got := terms.Least(curve)
		least := math.Inf(1)
		for i, wait := range curve.waits {
			cost, _ := terms.cost(curve, i)
			least = min(least, cost)
			if wait == got.Wait && cost > least {
				t.Fatalf("%+v: %+v costs %g, another one %g", terms, got, cost, least)
			}
		}
		if got.Wait < 0 || got.Wait > life || got.End == Keep && got.Wait != life {
			t.Fatalf("%+v is out of bounds", got)
		}
		dearer := terms
		dearer.Price *= 1 + draw.Float64()*10
		if other := dearer.Least(curve); other.Wait > got.Wait {
			t.Fatalf("%+v: a higher price lengthens %+v to %+v", terms, got, other)
		}
		terms.Releases = false
		likelier := curveOf(share+(1-share)*draw.Float64(), by)
		if before, after := terms.Least(curve), terms.Least(likelier); after.Wait < before.Wait {
			t.Fatalf("%+v: a higher chance shortens %+v to %+v", terms, before, after)
		}
	}
}

// What engines have not told leaves usual values, and strange counts leave terms that are no less than nothing.
func TestTermsOf_Bounds(t *testing.T) {
	for _, e := range []Engines{{}, {PerToken: -1, KVTokens: -1, PinnedTokens: -5}, {KVTokens: 10, PinnedTokens: 1000}} {
		for _, prompt := range []int{-1, 0, 100, 1000} {
			got := TermsOf(e, 500, prompt)
			if got.Price <= 0 || got.Leg <= 0 || got.Recompute < 0 || math.IsNaN(got.Price) {
				t.Errorf("%+v, prompt of %d: %+v", e, prompt, got)
			}
		}
	}
}
