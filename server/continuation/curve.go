package continuation

import (
	"math"
	"time"
)

// Curve is how many of the answers of a kind are still without a next turn after a time. The zero value knows nothing.
type Curve struct {
	Known  int             // answers from which it was learnt
	bounds []time.Duration // the last is the longest life of a ticket
	left   [maxSpans]float64
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
func (c counts) curve(bounds []time.Duration, coverage float64) Curve {
	curve := Curve{Known: int(c.known), bounds: bounds}
	assumed := coverage * (1 - math.Pow(1-assumedChance, 1/float64(len(bounds))))
	left := 1.0
	for i := range bounds {
		left *= 1 - (float64(c.continued[i])+assumedAnswers*assumed)/(float64(c.reached[i])+assumedAnswers)
		curve.left[i] = max(0, 1-(1-left)/coverage)
	}
	return curve
}

// Waits lists the waits that the rule chooses from: none at all, and the end of each span. The last one keeps a ticket for its life.
func (c *Curve) waits() int { return len(c.bounds) + 1 }

func (c *Curve) wait(i int) time.Duration {
	if i == 0 {
		return 0
	}
	return c.bounds[i-1]
}

// leftAt is the chance that an answer has no next turn until the end of a wait.
func (c *Curve) leftAt(i int) float64 {
	if i == 0 {
		return 1
	}
	return c.left[i-1]
}

// ever is the chance that an answer is continued within the life of a ticket.
func (c *Curve) ever() float64 { return 1 - c.leftAt(len(c.bounds)) }

// later is the chance that an answer is continued, but not until the end of a wait.
func (c *Curve) later(i int) float64 { return max(0, c.leftAt(i)-c.leftAt(len(c.bounds))) }

// pinnedFor is for how long a ticket pins its blocks in the mean, if it waits for its turn for so long at most. Continuations are taken to be
// spread evenly over a span.
func (c *Curve) pinnedFor(i int) (seconds float64) {
	for span := range i {
		width := c.wait(span+1) - c.wait(span)
		seconds += width.Seconds() * (c.leftAt(span) + c.leftAt(span+1)) / 2
	}
	return seconds
}
