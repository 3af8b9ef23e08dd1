package handback

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"carryover/cmd/pdbench/talk"
)

// Sizes in words. Answers are longer than the 64 tokens that prefill computes rather than reads.
const (
	systemWords  = 200
	shortWords   = 20
	longWords    = 200
	answerWords  = 50 // at least; at most half as many more
	turnsEach    = 3
	usualThink   = 30 * time.Second // the median of a log-normal distribution
	thinkSpread  = 0.8              // its sigma
	longestThink = 4 * time.Minute
	lateThink    = 20 * time.Minute
	lateOver     = 400 * time.Second // in which late conversations begin
)

// answerTokens is more than any answer has.
const answerTokens = 1000

// systems is the number of system prompts that the conversations share.
const systems = 4

// plan returns the conversations of a mode. They begin like independent arrivals. Modes with and without ids have the same conversations.
func plan(o options, m mode) []talk.Conversation {
	n, over, turns := o.conversations, o.over, turnsEach
	if m.late {
		n, over, turns = o.lateConversations(), lateOver, 2
	}
	draw := rand.New(rand.NewPCG(1, 0)) //nolint:gosec // the same conversations are wanted
	prompts := make([]string, systems)
	for i := range prompts {
		prompts[i] = fmt.Sprintf("You are assistant number %d. %s", i, talk.Prose(draw, systemWords))
	}
	list := make([]talk.Conversation, n)
	begins := 0.0
	for i := range list {
		c := &list[i]
		begins += draw.ExpFloat64()
		c.Begins, c.System = time.Duration(begins*float64(time.Second)), prompts[draw.IntN(systems)]
		if !m.anonymous {
			c.ID = fmt.Sprintf("report-%d", i)
		}
		for turn := range turns {
			q := ask(draw)
			switch {
			case turn == 0:
				q.Think = 0
			case m.late:
				q.Think = lateThink
			}
			c.Turns = append(c.Turns, q)
		}
	}
	for i := range list {
		list[i].Begins = time.Duration(float64(list[i].Begins) / begins * over.Seconds())
	}
	return list
}

func (o options) lateConversations() int { return max(1, o.conversations/4) }

// ask draws a question. Most are short; some have a long text with them.
func ask(draw *rand.Rand) talk.Question {
	u := draw.Float64()
	q := talk.Question{Answer: talk.Prose(draw, answerWords+draw.IntN(answerWords/2+1))}
	q.Text = talk.Prose(draw, shortWords+int(u*u*(longWords-shortWords))) + " SAY " + q.Answer
	q.Think = min(time.Duration(float64(usualThink)*math.Exp(thinkSpread*draw.NormFloat64())), longestThink)
	return q
}
