package turn

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// One tenant's requests deny no other tenant what all share.

func TestShares_ATenantThatSpendsItsRetriesLeavesThoseOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &New(Config{}, Deps{}).Retries
		random := rand.New(rand.NewPCG(1, 2))
		turns, retries, began := 0, 0, time.Now()
		for range 2000 { // of a client whose every request breaks its leg
			b.Earn("greedy", budgetPerTurn)
			turns++
			if b.take("greedy") {
				retries++
			}
			<-time.After(time.Duration(random.IntN(20)) * time.Millisecond)
			if random.IntN(100) == 0 {
				other := fmt.Sprint("other ", turns)
				b.Earn(other, budgetPerTurn)
				turns++
				if !b.take(other) {
					t.Fatalf("after %d turns, %d retries of one tenant, another is denied its first", turns, retries)
				}
				retries++
			}
		}
		if most := 200 + 0.2*float64(turns) + 10*time.Since(began).Seconds(); float64(retries) > most {
			t.Errorf("got %d retries of %d turns in %v, want at most %.0f", retries, turns, time.Since(began), most)
		}
		if retries < 300 {
			t.Errorf("got %d retries of %d turns: a lone tenant is to have what nobody else wants", retries, turns)
		}
		if n := len(b.taken); n > 10 {
			t.Errorf("the retries of %d tenants are remembered, though all but one took theirs long ago", n)
		}
	})
}

func TestShares_FewTenantsCannotSpendARetryBudgetAndManyCan(t *testing.T) {
	for tenants, denied := range map[int]bool{4: false, 20: true} {
		synctest.Test(t, func(t *testing.T) {
			b := &New(Config{}, Deps{}).Retries
			for i := range tenants { // each takes what it gets before the next comes
				for range 200 {
					b.take(fmt.Sprint("greedy ", i))
				}
			}
			if got := !b.take("other"); got != denied {
				t.Errorf("%d greedy tenants: another is denied its retry: %v, want %v", tenants, got, denied)
			}
		})
	}
}
