package convcache

import (
	"slices"
	"strconv"
	"testing"
)

func TestPrefilled_KeepsTheMostOfEachCacheAndTheLargestOfAll(t *testing.T) {
	named := func(i int) Holder { return Holder{"p", strconv.Itoa(i)} }
	var known []Prefilled
	for i := range MaxPrefilled + 3 {
		known = AddPrefilled(known, Prefilled{named(i), 10 * (i + 1)})
		known = AddPrefilled(known, Prefilled{named(i), 1})
	}
	if len(known) != MaxPrefilled {
		t.Errorf("%d are known, want %d", len(known), MaxPrefilled)
	}
	for i := range MaxPrefilled + 3 {
		want := 10 * (i + 1)
		if i < 3 { // those that held the least
			want = 0
		}
		if got := PrefilledIn(known, named(i)); got != want {
			t.Errorf("cache %d: %d tokens, want %d", i, got, want)
		}
	}
	before := slices.Clone(known)
	if known = AddPrefilled(known, Prefilled{named(99), 5}); !slices.Equal(known, before) {
		t.Error("one that holds less than all others was taken in")
	}
}
