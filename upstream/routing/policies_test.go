package routing_test

import (
	"fmt"
	"testing"

	"carryover/upstream"
	"carryover/upstream/routing"
)

func TestRoundRobin_GivesTurnsByWeight(t *testing.T) {
	all := candidates("a", "b", "c")
	all[1].Weight = 3
	var policy routing.RoundRobin
	got := ""
	for range 10 {
		got += all[policy.Pick(all, "")].Name
	}
	if got != "abbbcabbbc" {
		t.Errorf("picked %s", got)
	}
}

func TestLeastLoaded_PicksEqualOnesInTurn(t *testing.T) {
	all := candidates("a", "b", "c", "d")
	all[1].InFlight = 1
	var policy routing.LeastLoaded
	got := ""
	for range 6 {
		got += all[policy.Pick(all, "")].Name
	}
	if got != "acdacd" {
		t.Errorf("picked %s, want the three idle ones in turn", got)
	}
	for i := range all {
		all[i].InFlight = 4 - i
	}
	for range 3 {
		if got := all[policy.Pick(all, "")].Name; got != "d" {
			t.Errorf("picked %s, want d, the least loaded", got)
		}
	}
}

func TestPowerOfTwo_ComparesTheTwoThatItDraws(t *testing.T) {
	all := candidates("a", "b", "c")
	all[0].InFlight, all[1].InFlight, all[2].InFlight = 3, 1, 2
	for _, row := range []struct {
		draws []int
		want  string
	}{{[]int{0, 0}, "b"}, {[]int{0, 1}, "c"}, {[]int{1, 0}, "b"}, {[]int{1, 1}, "b"}, {[]int{2, 0}, "c"}, {[]int{2, 1}, "b"}} {
		draws := row.draws
		policy := routing.PowerOfTwo{Draw: func(n int) int {
			next := draws[0]
			draws = draws[1:]
			if next >= n {
				t.Fatalf("drew %d of %d", next, n)
			}
			return next
		}}
		if got := all[policy.Pick(all, "")].Name; got != row.want {
			t.Errorf("drew %v: picked %s, want %s", row.draws, got, row.want)
		}
	}
	var policy routing.PowerOfTwo
	count := map[string]int{}
	for range 3000 {
		count[all[policy.Pick(all, "")].Name]++
	}
	if count["a"] != 0 || count["b"] < 1800 || count["c"] < 800 {
		t.Errorf("of 3000 picks: %v, want the busiest never, the least busy in two thirds", count)
	}
	if got := policy.Pick(all[:1], ""); got != 0 {
		t.Errorf("of one candidate: %d", got)
	}
}

func TestPrefix_WithoutAPrefixAConversationHasAHome(t *testing.T) {
	for name, policy := range map[string]upstream.Policy{"prefix": &routing.Prefix{}, "auto": &routing.Auto{}} {
		all := candidates("a", "b", "c", "d")
		count := map[string]int{}
		for k := range 400 {
			key := fmt.Sprint("conversation-", k)
			home := all[policy.Pick(all, key)].Name
			if again := all[policy.Pick(all, key)].Name; again != home {
				t.Fatalf("%s: %q is at home at %s and %s", name, key, home, again)
			}
			count[home]++
		}
		for at, n := range count {
			if n < 60 || n > 140 {
				t.Errorf("%s: %d of 400 conversations are at home at %s", name, n, at)
			}
		}
		home := policy.Pick(all, "x")
		all[home].InFlight = 1
		if got := policy.Pick(all, "x"); got == home {
			t.Errorf("%s: the home is picked although it is busier than 1.25 times the mean", name)
		}
		for i := range all {
			all[i].InFlight, all[i].Delay = 0, 100
		}
		all[home].Delay = 400 // without requests, and slow
		if got := policy.Pick(all, "x"); got == home {
			t.Errorf("%s: a slow home without anything in its cache is picked", name)
		}
		all[home].Prefix = 1
		if got := policy.Pick(all, "x"); got != home {
			t.Errorf("%s: an idle favourite with the prefix in its cache is not picked", name)
		}
		all[home].Prefix = 0
		if got, next := policy.Pick(all, ""), policy.Pick(all, ""); got == next {
			t.Errorf("%s: without a key %d was picked twice, want the least loaded in turn", name, got)
		}
	}
}

// Of two decode instances one is at most twice as busy as the mean.
func TestAuto_AHolderGivesWayOnlyWhenManyAreIdle(t *testing.T) {
	var policy routing.Auto
	for _, row := range []struct{ instances, load, others int }{{2, 50, 0}, {3, 1, 0}, {4, 2, 1}, {4, 3, 1}} {
		all := decodes(row.instances, row.load, row.others)
		if got := policy.Pick(all, "x"); got != 0 {
			t.Errorf("%+v: picked %d, want the holder", row, got)
		}
	}
	for _, row := range []struct{ instances, load, others int }{{3, 2, 0}, {4, 4, 1}, {8, 6, 2}} {
		all := decodes(row.instances, row.load, row.others)
		if got := policy.Pick(all, "x"); got == 0 {
			t.Errorf("%+v: picked the holder", row)
		}
	}
}

// decodes are decode instances of which the first holds the conversation and has another load than the rest.
func decodes(n, load, others int) []upstream.Candidate {
	all := candidates([]string{"a", "b", "c", "d", "e", "f", "g", "h"}[:n]...)
	for i := range all {
		all[i].Role, all[i].InFlight = upstream.RoleDecode, others
	}
	all[0].Holds, all[0].InFlight = 100, load
	return all
}
