package server_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"carryover/server"
)

// wantDetached checks that what goes on without its client has its place, its bytes and its part of the engine.
func (r *rig) wantDetached(at *engine) {
	r.t.Helper()
	bytes, clients := r.server.Inflight()
	if open, busy := r.server.Open(), r.engine(at).Live().InFlight; open != 1 || bytes == 0 || clients != 1 || busy != 1 {
		r.t.Errorf("a leg without its client has %d places, %d bytes of %d clients and counts as %d attempts of its engine, want one of each",
			open, bytes, clients, busy)
	}
}

// wantNothingDetached waits until all of that is given back.
func (r *rig) wantNothingDetached() {
	r.t.Helper()
	r.until(func() bool {
		bytes, clients := r.server.Inflight()
		return r.server.Open() == 0 && bytes == 0 && clients == 0
	})
	for _, e := range append(r.prefill, r.decode...) {
		r.until(func() bool { return r.engine(e).Live().InFlight == 0 })
	}
}

func TestDetached_ALegThatTakesPrefillsBlocksKeepsItsClientsSlot(t *testing.T) {
	l := newLeaver(t)
	gate := make(chan struct{})
	seam := &legsSeam{}
	r := newRig(t, setup{
		cfg: func(c *server.Config) { c.MaxPerTenant = 1 },
		deps: func(d *server.Deps) {
			seam.Legs, d.Legs = d.Legs, seam
		},
		front: contexts(l.arrived),
	})
	seam.afterPrefill = func(ctx context.Context) {
		l.leave()
		<-ctx.Done()
	}
	r.decode[0].always(waits(gate, decodes))
	resp, err := r.open(l.ctx, http.MethodPost, chatPath, strings.NewReader(ask("c", true, history(1)...)))
	if err == nil {
		_ = resp.Body.Close()
	}
	r.decode[0].await(1)
	r.until(func() bool { return r.lines() == 1 })
	r.wantDetached(r.decode[0])
	seam.afterPrefill = nil
	r.wantError(r.turn("d", 1, false), http.StatusTooManyRequests, "tenant_limit")
	close(gate)
	r.wantNothingDetached()
	r.wantOK(r.turn("d", 1, false), "miss;")
}
