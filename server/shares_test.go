package server_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"carryover/server"
)

// One tenant's requests deny no other tenant what all share.

func TestShares_ATenantThatSpendsItsRetriesLeavesThoseOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		earn, take, shares := server.Retries()
		random := rand.New(rand.NewPCG(1, 2))
		turns, retries, began := 0, 0, time.Now()
		for range 2000 { // of a client whose every request breaks its leg
			earn("greedy")
			turns++
			if take("greedy") {
				retries++
			}
			<-time.After(time.Duration(random.IntN(20)) * time.Millisecond)
			if random.IntN(100) == 0 {
				other := fmt.Sprint("other ", turns)
				earn(other)
				turns++
				if !take(other) {
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
		if n := shares(); n > 10 {
			t.Errorf("the shares of %d tenants are kept, though all but one have long had theirs back", n)
		}
	})
}

func TestShares_FewTenantsCannotSpendARetryBudgetAndManyCan(t *testing.T) {
	for tenants, denied := range map[int]bool{4: false, 20: true} {
		synctest.Test(t, func(t *testing.T) {
			_, take, _ := server.Retries()
			for i := range tenants { // each takes what it gets before the next comes
				for range 200 {
					take(fmt.Sprint("greedy ", i))
				}
			}
			if got := !take("other"); got != denied {
				t.Errorf("%d greedy tenants: another is denied its retry: %v, want %v", tenants, got, denied)
			}
		})
	}
}

func TestShares_TurnsOfDecodeAlone(t *testing.T) {
	r := newRig(t, setup{cfg: func(c *server.Config) {
		c.TenantHeader = "X-Tenant"
		c.PrefillFailure = server.PrefillDecodeOnly
	}})
	gate := make(chan struct{})
	r.prefill[0].always(status(http.StatusInternalServerError, "boom"))
	r.decode[0].always(waits(gate, decodes))
	answers := make(chan reply, 20)
	for range 16 {
		go func() { answers <- r.turn("", 1, false, "X-Tenant", "greedy") }()
	}
	r.decode[0].await(16)
	r.wantError(r.turn("", 1, false, "X-Tenant", "greedy"), http.StatusServiceUnavailable, "prefill_unavailable")
	for i := range 4 {
		go func() { answers <- r.turn("", 1, false, "X-Tenant", fmt.Sprint("other ", i)) }()
	}
	r.decode[0].await(20)
	r.wantError(r.turn("", 1, false, "X-Tenant", "one more"), http.StatusServiceUnavailable, "prefill_unavailable")
	close(gate)
	for range 20 {
		r.wantOK(<-answers, "miss;")
	}
}
