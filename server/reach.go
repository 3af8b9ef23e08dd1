package server

import (
	"context"

	"carryover/upstream"
	"carryover/upstream/fleet"
)

// decode picks the decode instance of an attempt, before prefill works for it. One that has refused a connection or failed its probes,
// and has answered nothing since, must take a connection first: prefill's blocks would stay occupied for their lease (30 s, vLLM 0.33)
// if no decode instance read them, and clients that try again while decode restarts would fill prefill's cache. It gives up after
// maxDials instances; the error of an attempt without any is upstream.ErrNoInstance.
func (k *picker) decode(ctx context.Context, t *turn, p *pair) (*fleet.Engine, error) {
	for dials := 1; ; dials++ {
		engine, err := k.engine(ctx, t, upstream.RoleDecode, false, &p.decodeRoom)
		if err != nil || k.still || !engine.Unreached() || k.deps.Legs.Reach(ctx, engine.Instance()) == nil {
			return engine, err
		}
		if ctx.Err() != nil { // which tells nothing of the engine
			return nil, context.Cause(ctx)
		}
		engine.Refused()
		p.decodes(nil)
		t.tries.excluded = append(t.tries.excluded, engine)
		if dials == maxDials {
			return nil, upstream.ErrNoInstance
		}
	}
}
