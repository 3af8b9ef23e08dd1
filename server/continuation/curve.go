package continuation

import (
	"math"
	"time"
)

// Curve tells, for answers of a kind, how many still have no next turn after a time. The zero value knows nothing.
type Curve struct {
	Known int                   // the answers from which it was learnt
	waits []time.Duration       // the waits to choose from: zero and the end of each span; the last one is a ticket's life
	left  [maxSpans + 1]float64 // the chance that an answer has no next turn until the end of a wait
}

// Each span counts one assumed answer, with this chance to be continued over all spans together. It weighs nothing beside the answers that were seen.
// Without it, a kind would count as never continued while only its first seconds are known.
const (
	assumedAnswers = 1.0
	assumedChance  = 0.25
)

// curve multiplies the chances to wait through each span (the Kaplan-Meier estimator), so answers that still wait count for the time that they have
// waited. coverage is the share of continuations that is seen.
func (c counts) curve(waits []time.Duration, coverage float64) Curve {
	curve := Curve{Known: int(c.known), waits: waits}
	spans := len(waits) - 1
	assumed := coverage * (1 - math.Pow(1-assumedChance, 1/float64(spans)))
	left := 1.0
	curve.left[0] = left
	for i := range spans {
		left *= 1 - (float64(c.continued[i])+assumedAnswers*assumed)/(float64(c.reached[i])+assumedAnswers)
		curve.left[i+1] = max(0, 1-(1-left)/coverage)
	}
	return curve
}

// later is the chance that an answer is continued after a wait, but within the life of a ticket.
func (c *Curve) later(i int) float64 { return max(0, c.left[i]-c.left[len(c.waits)-1]) }

// pinnedFor is the mean time for which a ticket pins its blocks if it waits up to wait i. Continuations count as evenly spread over a span.
func (c *Curve) pinnedFor(i int) (seconds float64) {
	for span := range i {
		width := c.waits[span+1] - c.waits[span]
		seconds += width.Seconds() * (c.left[span] + c.left[span+1]) / 2
	}
	return seconds
}
