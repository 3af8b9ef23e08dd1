package server_test

import (
	"context"
	"testing"

	"carryover/server"
)

func TestIncarnation_UnknownLeavesNoTicket(t *testing.T) {
	r := newRig(t, setup{})
	for n, e := range []*engine{r.prefill[0], r.decode[0]} {
		r.tell(e, metricsOf("", rigBlock))
		r.wantOK(r.turn("c", n+1, true), "miss;reason=ineligible_unproven;why=incarnation")
		r.wantStored(n+1, "ineligible_unproven;why=incarnation")
		r.tell(e, metricsOf(rigIncarnation, rigBlock))
	}
}

// Between the pick of an instance and the take of a ticket its engine may be asked for seconds.
func TestIncarnation_EndsWhileTheTicketIsLookedFor(t *testing.T) {
	seam := &storeSeam{}
	r := newRig(t, setup{deps: func(d *server.Deps) { seam.Store, d.Store = d.Store, seam }})
	r.wantOK(r.turn("c", 1, true), "miss;")
	seam.peek = func(context.Context) { r.tell(r.decode[0], metricsOf("1.6e+09", rigBlock)) }
	r.wantOK(r.turn("c", 2, true), "miss;reason=instance_gone")
}
