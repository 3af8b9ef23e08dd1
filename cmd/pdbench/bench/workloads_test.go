package bench

import (
	"slices"
	"testing"

	"carryover/cmd/pdbench/contender"
)

func TestGroups_NameWhatThereIs(t *testing.T) {
	var names []string
	for _, c := range contender.All() {
		names = append(names, c.Name)
	}
	seen := map[string]bool{}
	for _, g := range groups() {
		if g.rounds < 1 {
			t.Errorf("%s has no rounds", g.workloads[0].Name)
		}
		for _, w := range g.workloads {
			if seen[w.Name] || w.What == "" || w.Time <= 0 || w.Conversations < 1 || w.Turns < 1 || w.Chunks < 1 {
				t.Errorf("%+v", w)
			}
			seen[w.Name] = true
			for _, name := range w.Contenders {
				if !slices.Contains(names, name) {
					t.Errorf("%s: there is no %s", w.Name, name)
				}
			}
		}
	}
}

func TestBrief_LeavesNothingOutAndChangesNothing(t *testing.T) {
	all, short := groups(), brief(groups())
	for i, g := range all {
		if len(short[i].workloads) != len(g.workloads) || short[i].rounds != 1 {
			t.Errorf("got %+v of %+v", short[i], g)
		}
		for j, w := range g.workloads {
			if s := short[i].workloads[j]; s.Name != w.Name || s.Time > w.Time || s.Conversations > smokeHeld || !slices.Equal(s.Contenders, w.Contenders) {
				t.Errorf("got %+v of %+v", s, w)
			}
		}
	}
	brief(all)
	if all[0].workloads[0].Time != groups()[0].workloads[0].Time {
		t.Error("the groups themselves were made shorter")
	}
}

func TestOnly(t *testing.T) {
	got := only(groups(), []string{w1Redis, w4}, nil)
	if len(got) != 2 || len(got[0].workloads) != 1 || got[0].workloads[0].Name != w1Redis || got[1].workloads[0].Name != w4 {
		t.Errorf("got %+v", got)
	}
	if got := only(groups(), nil, nil); len(got) != len(groups()) {
		t.Errorf("without names: %d groups of %d", len(got), len(groups()))
	}
	got = only(groups(), []string{w1, w1Redis}, []string{contender.Relay, contender.Direct})
	if len(got) != 1 || len(got[0].workloads) != 1 || !slices.Equal(got[0].workloads[0].Contenders, []string{contender.Direct, contender.Relay}) {
		t.Errorf("of two contenders: got %+v", got)
	}
	if all := groups()[0].workloads[0].Contenders; !slices.Contains(all, contender.Nginx) {
		t.Errorf("the workload itself has lost contenders: %v", all)
	}
	if got := only(groups(), []string{w1Redis}, []string{contender.Nginx}); len(got) != 0 {
		t.Errorf("nothing is common to them: got %+v", got)
	}
}

func TestOrder_GivesEachATurnInEachRound(t *testing.T) {
	const n = 7
	first := map[int]bool{}
	for round := range 3 {
		list := order(n, round)
		first[list[0]] = true
		if slices.Sort(list); !slices.Equal(list, []int{0, 1, 2, 3, 4, 5, 6}) {
			t.Errorf("round %d: %v", round, list)
		}
	}
	if len(first) != 3 {
		t.Errorf("%d contenders begin in three rounds", len(first))
	}
}
