package pins

import (
	"fmt"
	"testing"

	"carryover/upstream"
)

func TestGenerations_OlderThanTheHighestOfTheirEngine(t *testing.T) {
	g := &Pins{highest: map[memory]int{}}
	for _, step := range []struct {
		decode, engine string
		generation     int
		outdated       bool
	}{
		{"d", "e", 0, false}, // before 0.33
		{"d", "e", 1, false},
		{"d", "e", 1, false},
		{"d", "e", 0, true},
		{"d", "e", 3, false},
		{"d", "e", 2, true},
		{"d", "e", 3, false},
		{"d", "e_dp1", 1, false}, // another rank
		{"d", "e", 1, true},      // a configured engine id outlives a restart, and so does what prefill knows of it
		{"d2", "e", 1, false},
	} {
		parsed := &upstream.TicketParams{EngineID: step.engine, Generation: step.generation}
		if got := g.Registered(step.decode, parsed); got != step.outdated {
			t.Errorf("%+v: outdated %v", step, got)
		}
	}
}

func TestGenerations_AreBounded(t *testing.T) {
	g := &Pins{highest: map[memory]int{}}
	for n := range 3 * maxMemories {
		g.Registered("d", &upstream.TicketParams{EngineID: fmt.Sprint(n), Generation: 1})
	}
	if len(g.highest) > maxMemories {
		t.Errorf("%d engines are remembered, want %d at most", len(g.highest), maxMemories)
	}
}
