package routing_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"carryover/upstream"
	"carryover/upstream/routing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func candidates(names ...string) []upstream.Candidate {
	all := make([]upstream.Candidate, len(names))
	for i, name := range names {
		all[i] = upstream.Candidate{Instance: &upstream.Instance{Name: name}}
	}
	return all
}

func permutations(names []string) [][]string {
	if len(names) <= 1 {
		return [][]string{names}
	}
	var all [][]string
	for i := range names {
		rest := slices.Delete(slices.Clone(names), i, i+1)
		for _, p := range permutations(rest) {
			all = append(all, append([]string{names[i]}, p...))
		}
	}
	return all
}

func TestRoundRobin_SpreadsEvenlyUnderConcurrency(t *testing.T) {
	var policy routing.RoundRobin
	all := candidates("a", "b", "c")
	var mu sync.Mutex
	count := map[int]int{}
	var group sync.WaitGroup
	for range 300 {
		group.Go(func() {
			i := policy.Pick(all, "ignored")
			mu.Lock()
			count[i]++
			mu.Unlock()
		})
	}
	group.Wait()
	for i := range all {
		if count[i] != 100 {
			t.Errorf("candidate %d picked %d times, want 100", i, count[i])
		}
	}
}

func TestAffinity_IgnoresTheOrderOfCandidates(t *testing.T) {
	policy := routing.Affinity{Otherwise: &routing.RoundRobin{}}
	for k := range 20 {
		key := fmt.Sprint("conversation-", k)
		want := ""
		for _, names := range permutations([]string{"a", "b", "c", "d"}) {
			got := names[policy.Pick(candidates(names...), key)]
			if want == "" {
				want = got
			}
			if got != want {
				t.Fatalf("key %q: order %v picked %s, another order %s", key, names, got, want)
			}
		}
	}
}

func TestAffinity_MovesOnlyTheConversationsOfALostInstance(t *testing.T) {
	policy := routing.Affinity{Otherwise: &routing.RoundRobin{}}
	before, after := []string{"a", "b", "c"}, []string{"a", "c"}
	count := map[string]int{}
	for k := range 3000 {
		key := fmt.Sprint(k)
		was := before[policy.Pick(candidates(before...), key)]
		is := after[policy.Pick(candidates(after...), key)]
		count[was]++
		if was != "b" && is != was {
			t.Fatalf("key %q moved from %s to %s although %s is still there", key, was, is, was)
		}
	}
	for name, n := range count {
		if n < 800 || n > 1200 {
			t.Errorf("%s holds %d of 3000 conversations, want about 1000", name, n)
		}
	}
}

func TestAffinity_WithoutConversationUsesTheOtherPolicy(t *testing.T) {
	policy := routing.Affinity{Otherwise: &routing.RoundRobin{}}
	all := candidates("a", "b")
	if first, second := policy.Pick(all, ""), policy.Pick(all, ""); first == second {
		t.Errorf("two picks without a key chose %d twice, want both instances", first)
	}
}
