package policies

import (
	"math/rand/v2"
	"time"

	"carryover/cmd/pdbench/talk"
)

// Sizes in words.
const (
	systemWords  = 400
	shortWords   = 20
	longWords    = 600
	fewestTurns  = 4
	turnsSpread  = 3 // 4, 5 or 6
	usualThink   = 4 * time.Second
	longestThink = 15 * time.Second
)

// answerTokens is a short answer's limit: decode is not what is measured.
const answerTokens = 32

// plan makes the conversations.
func plan(seed uint64, n int, over time.Duration) []talk.Conversation {
	return talk.Plan{Seed: seed, ID: "fleet", Conversations: n, Over: over, SystemWords: systemWords,
		Length: func(draw *rand.Rand) int { return fewestTurns + draw.IntN(turnsSpread) },
		Ask: func(draw *rand.Rand, turn int) talk.Question {
			q := talk.Question{Text: talk.Prose(draw, talk.Mostly(draw.Float64(), shortWords, longWords))}
			if turn > 0 {
				q.Think = min(time.Duration(draw.ExpFloat64()*float64(usualThink)), longestThink)
			}
			return q
		},
	}.Make()
}
