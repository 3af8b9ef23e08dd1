package server

import (
	"fmt"
	"testing"

	"carryover/upstream"
)

func TestRatios_AreOfABoundedNumberOfModels(t *testing.T) {
	r := newRatios()
	for i := range 3 * maxRatios {
		r.learn(&turn{request: request{
			model:  fmt.Sprint("m", i),
			length: upstream.PromptLength{Whole: upstream.Length{Bytes: 2000}, Plain: true},
		}}, 1000)
	}
	if len(r.of) != maxRatios {
		t.Errorf("got %d models, want %d", len(r.of), maxRatios)
	}
	if got, want := r.get(fmt.Sprint("m", 3*maxRatios-1)), 3.75; got != want {
		t.Errorf("got %g bytes a token for the last model, want %g", got, want)
	}
	if got := r.get("unknown"); got != usualRatio {
		t.Errorf("got %g bytes a token for a model that is not known, want %d", got, usualRatio)
	}
}
