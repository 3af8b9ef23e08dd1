package continuation

import (
	"math"
	"time"
)

// Curve is how many of the answers of a kind are still without a next turn after a time. The zero value knows nothing.
type Curve struct {
	Known int                   // answers from which it was learnt
	waits []time.Duration       // those that the rule chooses from: none at all, and the end of each span; the last one keeps a ticket for its life
	left  [maxSpans + 1]float64 // the chance that an answer has no next turn until the end of a wait
}

// What is assumed of a span of time in which no answer was seen: as if one answer had been seen, with this chance to be continued over all
// spans. One answer weighs nothing beside those that were seen, and keeps a kind of which only the first seconds are known from being taken
// for one that is never continued.
const (
	assumedAnswers = 1.0
	assumedChance  = 0.25
)

// curve is the product of the chances to wait through each span (the estimator of Kaplan and Meier), so that answers that still wait count
// for the time that they have waited. coverage is which part of the continuations is seen.
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

// later is the chance that an answer is continued within the life of a ticket, but not until the end of a wait.
func (c *Curve) later(i int) float64 { return max(0, c.left[i]-c.left[len(c.waits)-1]) }

// pinnedFor is for how long a ticket pins its blocks in the mean, if it waits for its turn for so long at most. Continuations are taken to be
// spread evenly over a span.
func (c *Curve) pinnedFor(i int) (seconds float64) {
	for span := range i {
		width := c.waits[span+1] - c.waits[span]
		seconds += width.Seconds() * (c.left[span] + c.left[span+1]) / 2
	}
	return seconds
}
