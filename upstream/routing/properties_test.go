package routing_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"carryover/upstream"
	"carryover/upstream/routing"
)

// scene is a set of candidates by name, drawn at random from small numbers, so that ties and bounds are met often. Loads are
// sums of powers of two: their mean does not depend on the order.
func scene(random *rand.Rand, role upstream.Role) []upstream.Candidate {
	all := candidates([]string{"a", "b", "c", "d", "e"}[:1+random.IntN(5)]...)
	delays := random.IntN(2) == 0 && role == upstream.RolePrefill
	for i := range all {
		c := &all[i]
		c.Role, c.Weight = role, random.IntN(3)
		c.InFlight, c.Others, c.Waiting = random.IntN(4), random.IntN(3), random.IntN(2)
		if random.IntN(3) == 0 {
			c.InFlight, c.Others, c.Waiting = 0, 0, 0
		}
		c.Stopped = random.IntN(4) == 0
		if role == upstream.RoleDecode {
			c.Holds = max(0, random.IntN(6)-3) * 100
		} else {
			c.Prefix = max(0, random.IntN(6)-3)
		}
		if delays {
			c.Delay = float64(int(1) << (10 + random.IntN(4)))
		}
	}
	return all
}

// policies are those whose pick the candidates and the key decide, but for ties.
func policies() map[string]func() upstream.Policy {
	return map[string]func() upstream.Policy{
		"auto":         func() upstream.Policy { return &routing.Auto{} },
		"prefix":       func() upstream.Policy { return &routing.Prefix{} },
		"least_loaded": func() upstream.Policy { return &routing.LeastLoaded{} },
		"power_of_two": func() upstream.Policy { return &routing.PowerOfTwo{Draw: func(n int) int { return n / 2 }} },
	}
}

// mean is the mean load of those that are looked at.
func mean(all []upstream.Candidate) float64 {
	sum, n := 0.0, 0
	for i := range all {
		if !all[i].Stopped {
			sum, n = sum+routing.Load(&all[i]), n+1
		}
	}
	return sum / float64(max(n, 1))
}

func eachScene(t *testing.T, check func(t *testing.T, role upstream.Role, all []upstream.Candidate, key string)) {
	t.Helper()
	random := rand.New(rand.NewPCG(7, 11))
	for range 1500 {
		for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
			check(t, role, scene(random, role), []string{"", "x", "conversation"}[random.IntN(3)])
		}
	}
}

func TestPolicies_AStoppedInstanceComesLast(t *testing.T) {
	eachScene(t, func(t *testing.T, _ upstream.Role, all []upstream.Candidate, key string) {
		open := slices.ContainsFunc(all, func(c upstream.Candidate) bool { return !c.Stopped })
		for name, policy := range policies() {
			if c := all[policy().Pick(all, key)]; c.Stopped && open {
				t.Fatalf("%s picked %s, which is stopped, of %+v", name, c.Name, all)
			}
		}
		draws := 0
		for first := range all {
			for second := range all {
				p := routing.PowerOfTwo{Draw: func(n int) int { draws++; return []int{first, second}[draws%2] % n }}
				if c := all[p.Pick(all, key)]; c.Stopped && open {
					t.Fatalf("power_of_two picked %s, which is stopped, of %+v", c.Name, all)
				}
			}
		}
	})
}

// What is picked depends on the order only where several candidates are alike to the policy; then their load is the same.
func TestPolicies_TheOrderDecidesNothingButTies(t *testing.T) {
	eachScene(t, func(t *testing.T, _ upstream.Role, all []upstream.Candidate, key string) {
		for name, policy := range policies() {
			if name == "power_of_two" {
				continue // what is drawn depends on the order
			}
			first := all[policy().Pick(all, key)]
			for _, order := range permutations(indices(len(all))) {
				turned := make([]upstream.Candidate, len(all))
				for i, from := range order {
					turned[i] = all[from[0]-'0']
				}
				got := turned[policy().Pick(turned, key)]
				if got.Name != first.Name && (routing.Load(&got) != routing.Load(&first) || name == "auto" && got.Holds != first.Holds || name != "least_loaded" && got.Prefix != first.Prefix) {
					t.Fatalf("%s, key %q: picked %s in one order and %s in another of %+v", name, key, first.Name, got.Name, all)
				}
			}
		}
	})
}

func indices(n int) (all []string) {
	for i := range n {
		all = append(all, string(rune('0'+i)))
	}
	return all
}

// An idle favourite is taken; one that is too busy is not; and what is taken instead is not too busy.
func TestPolicies_AFavouriteGivesWayWhenItIsBusier(t *testing.T) {
	tooBusy := func(c *upstream.Candidate, all []upstream.Candidate) bool {
		if c.InFlight+c.Others == 0 {
			return false
		}
		if load := routing.Load(c); c.Role == upstream.RoleDecode {
			return load > 2*mean(all) && load > 1
		} else {
			return load > 1.25*mean(all)
		}
	}
	worth := func(c *upstream.Candidate) int { return c.Holds + c.Prefix }
	taken, gaveWay := 0, 0
	eachScene(t, func(t *testing.T, role upstream.Role, all []upstream.Candidate, key string) {
		open := slices.DeleteFunc(slices.Clone(all), func(c upstream.Candidate) bool { return c.Stopped })
		if len(open) == 0 {
			return
		}
		best := 0 // of what the candidates that are not too busy have
		for i := range open {
			if !tooBusy(&open[i], open) {
				best = max(best, worth(&open[i]))
			}
			if worth(&open[i]) > 0 && tooBusy(&open[i], open) {
				gaveWay++
			}
		}
		for name, policy := range map[string]upstream.Policy{"auto": &routing.Auto{}, "prefix": &routing.Prefix{}} {
			if name == "prefix" && role == upstream.RoleDecode {
				continue
			}
			got := open[policy.Pick(open, key)]
			if best > 0 && worth(&got) != best {
				t.Fatalf("%s picked %s, which has %d, want %d: %+v, mean %v", name, got.Name, worth(&got), best, open, mean(open))
			}
			if best > 0 {
				taken++
			}
			if tooBusy(&got, open) {
				t.Fatalf("%s picked %s, which is too busy: %+v, mean %v", name, got.Name, open, mean(open))
			}
		}
	})
	if taken < 100 || gaveWay < 100 {
		t.Errorf("%d favourites were taken, %d gave way: this test shows nothing", taken, gaveWay)
	}
}
