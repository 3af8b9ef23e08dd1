package handback

import (
	"math"
	"math/rand/v2"
	"time"

	"carryover/cmd/pdbench/talk"
)

// Sizes in words. Answers are longer than the 64 tokens that prefill would rather compute than read.
const (
	systemWords  = 200
	shortWords   = 20
	longWords    = 200
	answerWords  = 50 // at least, and at most half as many more
	turnsEach    = 3
	usualThink   = 30 * time.Second // the median of a log-normal distribution
	thinkSpread  = 0.8              // its sigma
	longestThink = 4 * time.Minute
	lateThink    = 20 * time.Minute
	lateOver     = 400 * time.Second // in which late conversations begin
)

// answerTokens is more than any answer has.
const answerTokens = 1000

// plan makes the conversations of a mode. Those of modes without ids are those of the others.
func plan(o options, m mode) []talk.Conversation {
	n, over, length := o.conversations, o.over, turnsEach
	if m.late {
		n, over, length = o.lateConversations(), lateOver, 2
	}
	list := talk.Plan{Conversations: n, Over: over, SystemWords: systemWords,
		Turns: length,
		Ask:   func(draw *rand.Rand, turn int) talk.Question { return ask(draw, turn, m.late) },
	}.Make()
	if m.anonymous {
		for i := range list {
			list[i].ID = ""
		}
	}
	return list
}

// lateConversations is how many conversations have turns after twenty minutes.
func (o options) lateConversations() int { return max(1, o.conversations/4) }

func ask(draw *rand.Rand, turn int, late bool) talk.Question {
	u := draw.Float64()
	q := talk.Question{Answer: talk.Prose(draw, answerWords+draw.IntN(answerWords/2+1))}
	q.Text = talk.Prose(draw, talk.Mostly(u, shortWords, longWords)) + " SAY " + q.Answer
	think := min(time.Duration(float64(usualThink)*math.Exp(thinkSpread*draw.NormFloat64())), longestThink)
	switch {
	case turn == 0:
	case late:
		q.Think = lateThink
	default:
		q.Think = think
	}
	return q
}
