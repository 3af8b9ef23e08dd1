package pins

import (
	"context"
	"errors"
	"time"

	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// workEvery is how often the releaser looks for unused tickets that wait.
const workEvery = time.Second

// workOff sends legs of our own for unused tickets whose release no turn has carried.
func (r *Releases) workOff(ctx context.Context) {
	for _, decode := range r.deps.Fleet.Holders.Due(r.cfg.ReleaseBacklog) {
		r.deps.Background("release", decode.Engine().Name, func() {
			defer decode.Done()
			for ctx.Err() == nil && r.ReleaseOne(ctx, decode.Engine()) {
			}
		})
	}
}

// ReleaseOne releases one ticket by a prefill leg that is dropped at its first event, and reports whether to go on with the next.
func (r *Releases) ReleaseOne(ctx context.Context, decode *fleet.Engine) bool {
	for _, prefill := range r.deps.Fleet.Engines(upstream.RolePrefill) {
		if prefill.Quarantined() || prefill.Health.Pauses() {
			continue
		}
		holder := decode.Current(ctx)
		reader := prefill.Current(ctx)
		pairState := reader.PairWith(holder)
		u, ok := reader.TakeUnused(holder, true)
		if !ok {
			continue
		}
		unused := r.release(u, holder, pairState, &r.counts.own)
		leg, err := r.deps.Connector.Release(unused.Offer(), u.Model)
		if err != nil {
			unused.Malformed()
			return true // its params are malformed; those of the next may not be
		}
		// A leg that has begun is not cut when the program ends, which waits for it: decode would keep the blocks.
		limited, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), r.cfg.TrialTimeout, upstream.ErrReuseTimeout)
		run := r.deps.Legs.HandBack
		if leg.Whole {
			run = r.deps.Legs.Prefill
		}
		_, err = run(limited, upstream.Leg{Instance: prefill.Instance(), API: leg.API, Body: rawjson.Pieces{leg.Body}, RequestID: upstream.NewID()})
		cancel()
		r.deps.Blame(prefill, err)
		var failed *upstream.LegError
		switch {
		case err == nil:
			unused.Sent()
		case errors.As(err, &failed) && (!failed.Sent || failed.Paused()):
			unused.Requeue()
		default:
			unused.open()
			r.counts.own.failed.Add(1)
			r.cfg.Logger.Warn("release failed; this pair releases nothing for a while", "prefill", prefill.Name, "decode", decode.Name, "error", err)
			pairState.ReleaseFailed(true)
		}
		return err == nil
	}
	return false
}
