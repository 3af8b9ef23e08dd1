package talk

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// Conversation is what one client is going to say, and when.
type Conversation struct {
	ID     string // "" for a client that names none
	System string
	Begins time.Duration // engine time since the start
	Turns  []Question
}

// Question is one message of the user.
type Question struct {
	Text   string
	Answer string        // which it orders, "" for any
	Think  time.Duration // engine time since the answer before, 0 for the first
}

// Plan says what conversations are like. Sizes are in words, of about one and a half tokens each.
type Plan struct {
	Conversations int
	Over          time.Duration // in which they begin, of engine time
	SystemWords   int
	Turns         int // of a conversation
	Ask           func(draw *rand.Rand, turn int) Question
}

// systems is how many system prompts the conversations share.
const systems = 4

// Make makes conversations whose beginnings are spread as independent arrivals are. They depend on the plan only.
func (p Plan) Make() []Conversation {
	draw := rand.New(rand.NewPCG(1, 0)) //nolint:gosec // the same conversations are wanted
	prompts := make([]string, systems)
	for i := range prompts {
		prompts[i] = fmt.Sprintf("You are assistant number %d. %s", i, Prose(draw, p.SystemWords))
	}
	list := make([]Conversation, p.Conversations)
	begins := 0.0
	for i := range list {
		begins += draw.ExpFloat64()
		c := Conversation{ID: fmt.Sprintf("report-%d", i), System: prompts[draw.IntN(systems)], Begins: time.Duration(begins * float64(time.Second))}
		for turn := range p.Turns {
			c.Turns = append(c.Turns, p.Ask(draw, turn))
		}
		list[i] = c
	}
	for i := range list {
		list[i].Begins = time.Duration(float64(list[i].Begins) / begins * p.Over.Seconds())
	}
	return list
}

// Prose returns a sentence of so many words.
func Prose(draw *rand.Rand, words int) string {
	known := strings.Fields(vocabulary)
	list := make([]string, words)
	for i := range list {
		list[i] = known[draw.IntN(len(known))]
	}
	return strings.Join(list, " ") + "."
}

// Mostly returns a number between short and long of one that was drawn between 0 and 1. It is mostly near short: most messages are short, and
// some bring a page along.
func Mostly(u float64, short, long int) int {
	return short + int(u*u*float64(long-short))
}

const vocabulary = "river letter harbour morning reader answer bridge lamp evening ship wind stone paper garden window silver branch " +
	"winter market candle signal engine ticket history station copper violin meadow thunder pocket ladder mirror orange quiet"
