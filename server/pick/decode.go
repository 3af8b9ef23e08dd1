package pick

import (
	"context"
	"errors"
	"slices"

	"carryover/upstream"
	"carryover/upstream/fleet"
)

// decode picks the decode instance of an attempt, before prefill works for it. An instance that has refused a connection or failed its
// probes, and has answered nothing since, must first accept a connection. Otherwise prefill's blocks would stay occupied for their lease
// (30 s, vLLM 0.33) when no decode instance reads them, and clients that try again while decode restarts would fill prefill's cache. An
// instance that has refused a request as paused must first say that it goes on. decode gives up after MaxDials instances, and then returns
// the error of the last one.
func (g *picking) decode(ctx context.Context) (*fleet.Engine, error) {
	var last *upstream.LegError
	for dials := 1; ; dials++ {
		engine, err := g.engine(ctx, upstream.RoleDecode, false, &g.pair.decodeSlot)
		switch {
		case last != nil && errors.Is(err, upstream.ErrNoInstance):
			return nil, last
		case err != nil:
			return nil, err
		}
		if last = g.serves(ctx, engine); last == nil {
			return engine, nil
		}
		if ctx.Err() != nil { // the turn was cancelled, which says nothing about the engine
			return nil, context.Cause(ctx)
		}
		g.pair.decodes(Slot{})
		g.Excluded = append(slices.Clip(g.Excluded), engine)
		if dials == MaxDials {
			return nil, last
		}
	}
}

// serves returns nil for a decode engine that takes connections and is not paused, as far as that has to be asked. It tells the fleet of an
// engine that refuses the connection.
func (k *Picker) serves(ctx context.Context, engine *fleet.Engine) *upstream.LegError {
	if engine.Health.Unreached() {
		if err := k.deps.Dialer.Reach(ctx, engine.Instance()); err != nil {
			if ctx.Err() == nil {
				engine.Refused()
			}
			return &upstream.LegError{Role: upstream.RoleDecode, Instance: engine.Name, Kind: upstream.Dial, Err: err}
		}
		engine.Refresh(ctx) // a reading that had no answer would count for five seconds, and another process may run by now
	}
	if fleet.StillPaused(ctx, engine) {
		return upstream.PausedError(engine.Instance())
	}
	return nil
}
