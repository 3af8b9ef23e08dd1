package routing_test

import (
	"fmt"
	"slices"
	"strings"
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

// eachOrder checks what Affinity picks of four candidates, a to d, in every order.
func eachOrder(t *testing.T, all []upstream.Candidate, check func(t *testing.T, picked upstream.Candidate)) {
	t.Helper()
	policy := routing.Affinity{Otherwise: &routing.RoundRobin{}}
	for _, names := range permutations([]string{"a", "b", "c", "d"}) {
		order := make([]upstream.Candidate, len(names))
		for i, name := range names {
			order[i] = all[strings.Index("abcd", name)]
		}
		check(t, order[policy.Pick(order, "conversation")])
	}
}

func TestAffinity_WeighsTheKVOfTheConversationBeforeItsHome(t *testing.T) {
	home := ""
	eachOrder(t, candidates("a", "b", "c", "d"), func(_ *testing.T, picked upstream.Candidate) { home = picked.Name })
	for mask := range 16 { // which are stopped
		for _, holds := range [][4]int{{}, {5}, {0, 5}, {0, 0, 5}, {0, 0, 0, 5}, {1, 2, 3, 4}, {4, 3, 2, 1}, {3, 3, 1, 0}, {0, 3, 0, 3}} {
			all := candidates("a", "b", "c", "d")
			most, homeless := 0, mask != 15 && mask>>strings.Index("abcd", home)&1 == 1
			for i := range all {
				all[i].Holds, all[i].Stopped = holds[i], mask>>i&1 == 1
				if !all[i].Stopped || mask == 15 {
					most = max(most, holds[i])
				}
			}
			before := ""
			eachOrder(t, all, func(t *testing.T, picked upstream.Candidate) {
				t.Helper()
				if picked.Stopped && mask != 15 {
					t.Errorf("holds %v, stopped %04b: picked %s, which is stopped", holds, mask, picked.Name)
				}
				if picked.Holds != most {
					t.Errorf("holds %v, stopped %04b: picked %s with %d, want one with %d", holds, mask, picked.Name, picked.Holds, most)
				}
				if most == 0 && !homeless && picked.Name != home {
					t.Errorf("holds %v, stopped %04b: picked %s, want %s as ever", holds, mask, picked.Name, home)
				}
				if before != "" && picked.Name != before {
					t.Errorf("holds %v, stopped %04b: picked %s in one order, %s in another", holds, mask, picked.Name, before)
				}
				before = picked.Name
			})
		}
	}
}

func TestRoundRobin_WeighsNothing(t *testing.T) {
	all := candidates("a", "b")
	all[0].Stopped, all[1].Holds = true, 100
	for key, policy := range map[string]upstream.Policy{"conversation": &routing.RoundRobin{}, "": &routing.Affinity{Otherwise: &routing.RoundRobin{}}} {
		for n, want := range []int{0, 1, 0, 1} {
			if got := policy.Pick(all, key); got != want {
				t.Errorf("%T, pick %d: got %d, want %d", policy, n, got, want)
			}
		}
	}
}
