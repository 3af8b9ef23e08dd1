package keep

import (
	"math"
	"math/rand/v2"
	"time"

	"carryover/cmd/pdbench/talk"
)

// workload is when conversations begin and how they go on. The workloads are those of server/continuation's own simulation, which begin more
// often.
type workload struct {
	name    string
	every   time.Duration // between two beginnings, in the mean
	systems int           // words of the system prompt, which conversations share
	shares  [3]int        // of one-shot requests, chats and agents
}

func workloads() []workload {
	return []workload{
		{"one-shot", time.Second, 60, [3]int{1, 0, 0}},
		{"chat", 4 * time.Second, 60, [3]int{0, 1, 0}},
		{"agent", 40 * time.Second, 600, [3]int{0, 0, 1}},
		{"mixed", 10 * time.Second, 60, [3]int{4, 2, 1}},
	}
}

// wordsPerToken turns tokens of prose into words, roughly.
const wordsPerToken = 2.0 / 3

// mostTurns bounds a conversation.
const mostTurns = 60

// plan makes the conversations that begin within a time. They depend on the workload and the seed only.
func (w *workload) plan(seed uint64, over time.Duration) []talk.Conversation {
	list := talk.Plan{
		Seed: seed, Conversations: max(1, int(over/w.every)), Over: over, SystemWords: w.systems, Length: func(*rand.Rand) int { return 0 },
	}.Make()
	all := w.shares[0] + w.shares[1] + w.shares[2]
	for i := range list {
		c := &list[i]
		c.ID = ""
		draw := rand.New(rand.NewPCG(seed, uint64(i)+1)) //nolint:gosec // the same conversations are wanted
		switch which := draw.IntN(all); {
		case which < w.shares[0]:
			c.Turns = []talk.Question{{Text: prose(draw, 300, 1500), Least: 50 + draw.IntN(300)}}
		case which < w.shares[0]+w.shares[1]:
			c.Turns = chat(draw)
		default:
			c.Tools, c.Turns = true, agent(draw)
		}
	}
	return list
}

// chat is a user who asks again within minutes, most times.
func chat(draw *rand.Rand) []talk.Question {
	turns := []talk.Question{{Text: prose(draw, 200, 800), Least: 150 + draw.IntN(300)}}
	for draw.Float64() < 0.7 && len(turns) < mostTurns {
		turns = append(turns, talk.Question{Text: prose(draw, 20, 100), Least: 150 + draw.IntN(300), Think: logNormal(draw, 30*time.Second)})
	}
	return turns
}

// agent is a task for which tools are called within seconds of each other, and after which some users have another one.
func agent(draw *rand.Rand) (turns []talk.Question) {
	next := talk.Question{Text: prose(draw, 3000, 7000)}
	for {
		calls := draw.Float64() < 0.93 && len(turns) < mostTurns-1 // the last turn is no call
		if calls {
			next.Text += " " + talk.Call(prose(draw, 40, 120))
		} else {
			next.Least = 60 + draw.IntN(120)
		}
		turns = append(turns, next)
		switch {
		case calls:
			next = talk.Question{Text: prose(draw, 50, 600), Think: logNormal(draw, 1500*time.Millisecond), Result: true}
		case len(turns) < mostTurns && draw.Float64() < 0.4:
			next = talk.Question{Text: prose(draw, 50, 600), Think: logNormal(draw, time.Minute)}
		default:
			return turns
		}
	}
}

// prose has about so many tokens.
func prose(draw *rand.Rand, least, most int) string {
	return talk.Prose(draw, int(wordsPerToken*float64(least+draw.IntN(most-least))))
}

// logNormal draws a time around a median.
func logNormal(draw *rand.Rand, median time.Duration) time.Duration {
	return time.Duration(float64(median) * math.Exp(0.8*draw.NormFloat64()))
}
