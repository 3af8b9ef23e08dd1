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
