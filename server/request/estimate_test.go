package request

import (
	"fmt"
	"testing"

	"carryover/upstream/body"
)

func TestRatios_AreOfABoundedNumberOfModels(t *testing.T) {
	r := NewRatios()
	for i := range 3 * maxRatios {
		r.Learn(&Request{
			Model:  fmt.Sprint("m", i),
			Length: body.PromptLength{Whole: body.Length{Bytes: 2000}, Plain: true},
		}, 1000)
	}
	if len(r.of) != maxRatios {
		t.Errorf("got %d models, want %d", len(r.of), maxRatios)
	}
	if got, want := r.Get(fmt.Sprint("m", 3*maxRatios-1)), 3.75; got != want {
		t.Errorf("got %g bytes a token for the last model, want %g", got, want)
	}
	for _, l := range []body.PromptLength{{Whole: body.Length{Bytes: 2000}}, {Whole: body.Length{Bytes: 12}, Plain: true}} { // not of text alone, or short
		r.Learn(&Request{Model: "unknown", Length: l}, int(l.Whole.Bytes)/2)
	}
	if got := r.Get("unknown"); got != UsualRatio {
		t.Errorf("got %g bytes a token for a model that is not known, want %d", got, UsualRatio)
	}
}

// A token of a tokenizer that knows bytes only is one byte, and the template's own tokens come on top. Fewer bytes, or too many, are
// those of another text.
func TestRatios_OfOneByteATokenAreLearnt(t *testing.T) {
	for tokens, want := range map[int]float64{2400: 1, 2410: 1, 2900: 1, 3100: UsualRatio, 300: 8, 140: UsualRatio} {
		r := NewRatios()
		for range 200 {
			r.Learn(&Request{Model: "m", Length: body.PromptLength{Whole: body.Length{Bytes: 2400}, Plain: true}}, tokens)
		}
		if got := r.Get("m"); got < want-0.001 || got > want+0.001 {
			t.Errorf("2400 bytes in %d tokens: got %g bytes a token, want %g", tokens, got, want)
		}
	}
}
