package facts

// marginal is what one more token of a prompt costs prefill: the slope of the legs' times over their tokens, in fading sums. The time over the
// tokens has in it what each leg costs however few tokens it computes (a step of the engine, HTTP, the way there), which is a third of it and
// more where most of a prompt is cached.
type marginal struct{ legs, tokens, time, squares, products float64 }

// How a slope is learnt.
const (
	marginalWeight = 0.95 // of all earlier legs at each new one
	marginalLegs   = 4.0  // legs before there is a slope
	marginalSpread = 0.1  // the least variance of the tokens, over the square of their mean: legs of one length show no slope
	marginalLeast  = 0.25 // the least slope, as a share of the time over the tokens
)

// learn adds a leg, and returns the slope in nanoseconds, 0 while the legs show none.
func (m *marginal) learn(tokens, ns float64) float64 {
	const w = marginalWeight
	*m = marginal{m.legs*w + 1, m.tokens*w + tokens, m.time*w + ns, m.squares*w + tokens*tokens, m.products*w + tokens*ns}
	x, y := m.tokens/m.legs, m.time/m.legs
	spread := m.squares/m.legs - x*x
	if m.legs < marginalLegs || spread < marginalSpread*x*x {
		return 0
	}
	return min(y/x, max(marginalLeast*y/x, (m.products/m.legs-x*y)/spread))
}
