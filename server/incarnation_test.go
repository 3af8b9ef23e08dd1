package server_test

import (
	"context"
	"testing"

	"carryover/server"
	"carryover/upstream"
)

// proofs runs a test with both proofs, each with the requests that it can prove.
func proofs(t *testing.T, test func(t *testing.T, r *rig, turn func(n int) reply), s setup) {
	t.Helper()
	t.Run("history", func(t *testing.T) {
		r := newRig(t, s)
		test(t, r, func(n int) reply { return r.turn("c", n, true) })
	})
	t.Run("tokens", func(t *testing.T) {
		s := s
		inner := s.cfg
		s.cfg = func(c *server.Config) {
			byTokens(c)
			if inner != nil {
				inner(c)
			}
		}
		r := newRig(t, s)
		r.inIDs(nil)
		test(t, r, func(n int) reply { return r.sendIDs("c", true, count(100, 200*n)...) })
	})
}

func TestIncarnation_UnknownLeavesNoTicket(t *testing.T) {
	for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
		t.Run(role.String(), func(t *testing.T) {
			proofs(t, func(t *testing.T, r *rig, turn func(n int) reply) {
				engines := r.prefill
				if role == upstream.RoleDecode {
					engines = r.decode
				}
				r.tell(engines[0], metricsOf("", rigBlock))
				for n := 1; n <= 2; n++ {
					r.wantOK(turn(n), "miss;reason=ineligible_unproven;why=incarnation")
					r.wantStored(n, "ineligible_unproven;why=incarnation")
				}
			}, setup{})
		})
	}
}

// Between the pick of an instance and the take of a ticket its engine may be asked for seconds.
func TestIncarnation_EndsWhileTheTicketIsLookedFor(t *testing.T) {
	seam := &storeSeam{}
	proofs(t, func(t *testing.T, r *rig, turn func(n int) reply) {
		seam.peek = nil
		r.wantOK(turn(1), "miss;")
		seam.peek = func(context.Context) { r.tell(r.decode[0], metricsOf("1.6e+09", rigBlock)) }
		r.wantOK(turn(2), "miss;reason=instance_gone")
	}, setup{deps: func(d *server.Deps) { seam.Store, d.Store = d.Store, seam }})
}
