package server_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"carryover/convcache"
	"carryover/server"
	"carryover/upstream"
)

func releasing(c *server.Config) { c.Release, c.ReleaseBacklog = true, 8 }

// left is the id by which a prefill leg names what that decode leg has left.
func left(l leg) string { return "chatcmpl-" + l.id() }

// shot is a request that belongs to no conversation: its blocks are of no use to any turn.
func (r *rig) shot() {
	r.t.Helper()
	r.wantOK(r.turn("", 1, true), "miss;reason=no_conversation")
}

func (r *rig) wantCarried(at int, id string) {
	r.t.Helper()
	if got := r.prefill[0].seen()[at].ticket(); got != id {
		r.t.Errorf("prefill leg %d names the blocks of %q, want %q", at, got, id)
	}
}

// What was added to the leg has broken it, which costs no retry budget.
func TestRelease_FailedLegIsRunAgainWithoutAndThePairPauses(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]behaviour{"500": status(500, "x"), "silent": silent} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{cfg: func(c *server.Config) {
				if releasing(c); name == "silent" {
					c.ReuseTrialTimeout = soonOver
				}
			}})
			r.server.SpendRetries()
			r.shot()
			r.prefill[0].next(failure)
			r.shot()
			r.shot()
			r.wantCarried(1, left(r.decode[0].seen()[0]))
			r.wantCarried(2, "")
			r.wantCarried(3, "")
		})
	}
}

// unsent fails prefill legs before anything is sent.
type unsent struct {
	upstream.Legs
	now atomic.Bool
}

func (e *unsent) in(d *server.Deps) { e.Legs, d.Legs = d.Legs, e }

func (e *unsent) Prefill(ctx context.Context, l upstream.Leg) (upstream.PrefillAnswer, error) {
	if e.now.Load() {
		return upstream.PrefillAnswer{}, &upstream.LegError{
			Role: upstream.RolePrefill, Instance: l.Instance.Name, Kind: upstream.Dial, Err: errors.New("refused"),
		}
	}
	return e.Legs.Prefill(ctx, l)
}

func TestRelease_UnsentLegLeavesItWaiting(t *testing.T) {
	engine := &unsent{}
	r := newRig(t, setup{cfg: releasing, deps: engine.in})
	r.shot()
	engine.now.Store(true)
	r.shot()
	engine.now.Store(false)
	r.engine(r.prefill[0]).Refresh(t.Context()) // another incarnation may have refused
	r.shot()
	r.wantCarried(1, left(r.decode[0].seen()[0]))
}

// A client that sends what engines refuse can't keep blocks pinned.
func TestRelease_RefusedRequestLosesNoRelease(t *testing.T) {
	r := newRig(t, setup{cfg: releasing})
	r.shot()
	r.prefill[0].next(status(400, "temperature must be positive"))
	r.wantError(r.turn("", 1, true), 400, "invalid_request")
	r.shot() // carries what came after, and not what may have been the reason
	decoded := r.decode[0].seen()
	legs := r.prefill[0].seen()
	if legs[1].ticket() != left(decoded[0]) {
		t.Fatalf("the refused leg carried %q, want %q", legs[1].ticket(), left(decoded[0]))
	}
	if got := legs[2].ticket(); got != "" {
		t.Errorf("the next turn carries %q, want nothing: only a leg of our own may", got)
	}
	r.refused = append(r.refused, left(decoded[0]))
	if !r.server.ReleaseOne(t.Context(), r.engine(r.decode[0])) {
		t.Fatal("nothing is released by a leg of our own")
	}
	r.wantCarried(3, left(decoded[0]))
}

// While decode's start is not known for a moment, what waits for its release goes on waiting.
func TestRelease_WhileDecodesIncarnationIsForgotten(t *testing.T) {
	seam := &storeSeam{}
	r := newRig(t, setup{probeless: true, cfg: releasing, deps: func(d *server.Deps) { seam.Store, d.Store = d.Store, seam }})
	r.wantOK(r.turn("c", 1, true), "miss;")
	decode := r.engine(r.decode[0])
	seam.put = func(context.Context) (convcache.Outcome, bool) {
		decode.Refused() // to another turn
		decode.Health.Answered()
		return convcache.Expired, true
	}
	r.wantOK(r.turn("d", 1, true), "miss;")
	decode.Refresh(t.Context()) // the same incarnation
	if n, _, _ := r.server.Pins.Due(decode); n == 0 {
		t.Errorf("%d tickets wait for a release, want decode's", n)
	}
}
