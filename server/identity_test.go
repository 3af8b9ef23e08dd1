package server_test

import (
	"fmt"
	"testing"

	"carryover/server"
)

// byTenant has a gateway name tenants.
func byTenant(c *server.Config) { c.TenantHeader = "X-Tenant" }

func TestTenant_SaltIsOnBothLegs(t *testing.T) {
	for _, own := range []bool{true, false} {
		r := newRig(t, setup{cfg: func(c *server.Config) { c.TenantSalt = own }})
		salts := map[string]bool{}
		for n := range 4 { // two tenants with two salts each
			r.wantOK(r.send(with(fmt.Sprintf(`"cache_salt":"client%d"`, n%2)), "Authorization", fmt.Sprint("Bearer ", n/2)), "miss;")
			salt := saltIn(r.prefill[0].seen()[n])
			if decode := saltIn(r.decode[0].seen()[n]); salt != decode || (salt == fmt.Sprint("client", n%2)) == own {
				t.Errorf("got salts %q and %q, want one of our own on both legs: %t", salt, decode, own)
			}
			salts[salt] = true
		}
		if own && len(salts) != 4 {
			t.Errorf("got salts %v, want one for each tenant and salt", salts)
		}
	}
}

func byContent(c *server.Config) { c.ByContent = true }

// All turns of a conversation without an id have one name, under which its last ticket is shown.
func TestByContent_TurnsHaveOneName(t *testing.T) {
	r := newRig(t, setup{cfg: byContent})
	names := map[any]bool{}
	for n := 1; n <= 4; n++ {
		r.wantOK(r.turn("", n, n%2 == 0), "")
		r.wantStored(n, "yes")
		_, line := r.line()
		names[line["conversation"]] = true
	}
	for name := range names {
		if out := r.server.TicketsOut(name.(string)); len(names) != 1 || len(out) != 1 || r.store.Len() != 1 {
			t.Errorf("names %v, %d tickets are shown under one, want one of one", names, len(out))
		}
	}
}
