package server

import (
	"fmt"
	"testing"

	"carryover/upstream"
)

func TestGenerations_OlderThanTheHighestOfTheirEngine(t *testing.T) {
	g := newGenerations()
	for _, step := range []struct {
		decode, start, engine string
		generation            int
		outdated              bool
	}{
		{"d", "s", "e", 0, false}, // before 0.33
		{"d", "s", "e", 1, false},
		{"d", "s", "e", 1, false},
		{"d", "s", "e", 0, true},
		{"d", "s", "e", 3, false},
		{"d", "s", "e", 2, true},
		{"d", "s", "e", 3, false},
		{"d", "s", "e_dp1", 1, false}, // another rank
		{"d", "s2", "e", 1, false},    // a configured engine id outlives a restart
		{"d", "s", "e", 2, true},      // and the first start is not forgotten for it
		{"d2", "s", "e", 1, false},
	} {
		kept := &upstream.Kept{EngineID: step.engine, Generation: step.generation}
		if got := g.outdated(step.decode, step.start, kept); got != step.outdated {
			t.Errorf("%+v: outdated %v", step, got)
		}
	}
}

func TestGenerations_AreBounded(t *testing.T) {
	g := newGenerations()
	for n := range 3 * maxGenerations {
		g.outdated("d", fmt.Sprint(n), &upstream.Kept{EngineID: "e", Generation: 1})
	}
	if len(g.highest) > maxGenerations {
		t.Errorf("%d engines are remembered, want %d at most", len(g.highest), maxGenerations)
	}
}
