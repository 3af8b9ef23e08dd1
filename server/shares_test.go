package server_test

import (
	"fmt"
	"net/http"
	"testing"

	"carryover/server"
	"carryover/server/turn"
)

// One tenant's requests deny no other tenant what all share.

func TestShares_TurnsOfDecodeAlone(t *testing.T) {
	r := newRig(t, setup{cfg: func(c *server.Config) {
		c.TenantHeader = "X-Tenant"
		c.PrefillFailure = turn.PrefillDecodeOnly
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
