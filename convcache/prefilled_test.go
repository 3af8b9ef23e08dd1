package convcache

import (
	"slices"
	"testing"
)

func TestPrefilled_KeepsTheMostOfEachCacheAndTheLargestOfAll(t *testing.T) {
	var known []Prefilled
	for i := range MaxPrefilled + 3 {
		known = AddPrefilled(known, Prefilled{Incarnation: Incarnation(i + 1), Tokens: 10 * (i + 1)})
		known = AddPrefilled(known, Prefilled{Incarnation: Incarnation(i + 1), Tokens: 1})
	}
	if len(known) != MaxPrefilled {
		t.Errorf("%d are known, want %d", len(known), MaxPrefilled)
	}
	for i := range MaxPrefilled + 3 {
		want := 10 * (i + 1)
		if i < 3 { // those that held the least
			want = 0
		}
		if got := PrefilledIn(known, Incarnation(i+1), 0); got != want {
			t.Errorf("cache %d: %d tokens, want %d", i+1, got, want)
		}
	}
	before := slices.Clone(known)
	if known = AddPrefilled(known, Prefilled{Incarnation: 99, Tokens: 5}); !slices.Equal(known, before) {
		t.Error("one that holds less than all others was taken in")
	}
	if PrefilledIn(known, 9, 1) != 0 {
		t.Error("a cache under another salt is taken for it")
	}
}
