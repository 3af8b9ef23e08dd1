package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// conversation is what one client is going to say, and when.
type conversation struct {
	id     string
	system string
	begins time.Duration // engine time since the start
	turns  []question
}

// question is one message of the user.
type question struct {
	text  string
	think time.Duration // engine time since the answer before, 0 for the first
}

// Sizes in words, of about one and a half tokens each.
const (
	systemWords  = 400
	systems      = 4 // conversations share as many system prompts
	shortWords   = 20
	longWords    = 600
	fewestTurns  = 4
	turnsSpread  = 3 // 4, 5 or 6
	usualThink   = 4 * time.Second
	longestThink = 15 * time.Second
)

// plan makes conversations whose beginnings are spread as independent arrivals are. It depends on its arguments only.
func plan(seed uint64, n int, over time.Duration) []conversation {
	draw := rand.New(rand.NewPCG(seed, 0))
	prompts := make([]string, systems)
	for i := range prompts {
		prompts[i] = fmt.Sprintf("You are assistant number %d. %s", i, prose(draw, systemWords))
	}
	list := make([]conversation, n)
	begins := 0.0
	for i := range list {
		begins += draw.ExpFloat64()
		list[i] = conversation{id: fmt.Sprintf("fleet-%d-%d", seed, i), system: prompts[draw.IntN(systems)], begins: time.Duration(begins * float64(time.Second))}
		for range fewestTurns + draw.IntN(turnsSpread) {
			// Squared, so that most messages are short and some bring a page along.
			u := draw.Float64()
			q := question{text: prose(draw, shortWords+int(u*u*(longWords-shortWords)))}
			if len(list[i].turns) > 0 {
				q.think = min(time.Duration(draw.ExpFloat64()*float64(usualThink)), longestThink)
			}
			list[i].turns = append(list[i].turns, q)
		}
	}
	for i := range list {
		list[i].begins = time.Duration(float64(list[i].begins) / begins * over.Seconds())
	}
	return list
}

func turns(list []conversation) (n int) {
	for _, c := range list {
		n += len(c.turns)
	}
	return n
}

const vocabulary = "river letter harbour morning reader answer bridge lamp evening ship wind stone paper garden window silver branch " +
	"winter market candle signal engine ticket history station copper violin meadow thunder pocket ladder mirror orange quiet"

func prose(draw *rand.Rand, words int) string {
	known := strings.Fields(vocabulary)
	list := make([]string, words)
	for i := range list {
		list[i] = known[draw.IntN(len(known))]
	}
	return strings.Join(list, " ") + "."
}
