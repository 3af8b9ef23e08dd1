package convcache

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestLineage_JoinsByNameAndSpaceAndKeepsTheLaterMoment(t *testing.T) {
	var l Lineage
	if !l.Unknown() {
		t.Error("the zero lineage is known")
	}
	l.Add(Ancestor{2, 0, 10})
	l.Join(Lineage{Ancestors: []Ancestor{{1, 0, 5}, {2, 0, 7}, {2, 9, 3}}, Others: 4})
	l.Join(Lineage{Ancestors: []Ancestor{{2, 0, 11}}, Others: 2})
	want := []Ancestor{{1, 0, 5}, {2, 0, 11}, {2, 9, 3}}
	if !slices.Equal(l.Ancestors, want) || l.Others != 4 || l.Unknown() {
		t.Errorf("got %+v, want %+v and 4", l, want)
	}
	c := l.Clone()
	c.Add(Ancestor{1, 0, 50})
	if l.Ancestors[0].Until != 5 {
		t.Error("a clone shares memory")
	}
}

// What a lineage names no more is among its Others, however it comes.
func TestLineage_ForgetsNoAncestor(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var l Lineage
		latest := map[Incarnation]int64{}
		for range draw.IntN(3 * MaxAncestors) {
			a := Ancestor{Incarnation(draw.IntN(2 * MaxAncestors)), 0, int64(draw.IntN(1000) + 1)}
			latest[a.Incarnation] = max(latest[a.Incarnation], a.Until)
			if draw.IntN(2) == 0 {
				l.Add(a)
			} else {
				l.Join(Lineage{Ancestors: []Ancestor{a}})
			}
		}
		if draw.IntN(2) == 0 {
			l.Bound()
		}
		l.Bound()
		if len(l.Ancestors) > MaxAncestors || !slices.IsSortedFunc(l.Ancestors, compareAncestors) {
			t.Fatalf("got %d ancestors: %+v", len(l.Ancestors), l)
		}
		for name, until := range latest {
			named := slices.ContainsFunc(l.Ancestors, func(a Ancestor) bool { return a.Incarnation == name && a.Until >= until })
			if !named && l.Others < until {
				t.Fatalf("ancestor %d until %d is lost: %+v", name, until, l)
			}
		}
	}
}
