package connector

import (
	"context"
	"errors"
	"slices"

	"carryover/upstream/vllmsim/engine"
)

// mooncake is MooncakeConnector (mooncake_connector.py, 0.32; times and cases were measured over TCP). The transfer_id of both legs
// identifies the KV. Answers have no kv_transfer_params.
type mooncake struct {
	engine.Idle
	// The engine's mutex guards what follows.
	finished chan struct{}     // closed and replaced when a prefill has left KV
	known    map[string]string // worker addresses of other engines by engine id; they are never forgotten
}

func newMooncake(e *engine.Engine) *mooncake {
	return &mooncake{Idle: engine.Idle{Engine: e}, finished: make(chan struct{}), known: make(map[string]string)}
}

// pulls reports whether a decode leg has the keys of a transfer. As in vLLM, their values do not matter.
func pulls(p *engine.ParamsIn) bool {
	return p.Has("remote_engine_id") && p.Has("remote_bootstrap_addr") && p.Has("transfer_id")
}

// Fetch makes prefill push the KV that the own prefix cache lacks, and waits for it.
func (m *mooncake) Fetch(ctx context.Context, r *engine.Run) error {
	e, p := m.Engine, r.Req.Params
	if !p.Decodes() {
		return nil
	}
	r.Remote = m // from now on Drop does not notify prefill, whatever happens to the request
	if !pulls(p) {
		return r.Park(ctx) // no transfer begins, and the leg waits for one
	}
	t := &mooncakeTransfer{ended: make(chan struct{}), blocks: slices.Clone(r.Blocks[r.Local/e.Cfg.BlockSize:]), perBlock: r.Timing().TransferPerBlock}
	e.Async.Spawn(func() { m.load(p, t) })
	r.Deferred(&e.Stats.Loading, func() {
		select {
		case <-t.ended:
		case <-ctx.Done():
		}
	})
	e.Mu.Lock()
	select {
	case <-t.ended:
	default:
		// The scheduler never frees blocks while the transfer writes to them, even if the client has gone.
		t.orphans, r.Blocks = r.Blocks, nil
	}
	e.Mu.Unlock()
	switch {
	case r.Blocks == nil:
		return context.Cause(ctx)
	case t.err != nil:
		e.Count(&e.Stats.LoadFailures, 1)
		return errors.Join(engine.ErrLoadFailed, t.err)
	}
	r.External = len(r.Req.Prompt) - r.Local
	e.Count(&e.Stats.Loads, 1)
	_, err := r.LetIn(ctx, engine.Need{Ahead: true}, func() {})
	return err
}

// Finish keeps the KV of a prefill leg that ended by its length (request_finished: FINISHED_LENGTH_CAPPED). The caller holds e.Mu.
func (m *mooncake) Finish(r *engine.Run) *engine.ParamsOut {
	e, id := m.Engine, r.Req.Params.Text("transfer_id")
	if !r.Req.Params.Prefills() || id == "" || !r.Capped {
		e.Free(r.Blocks)
		return nil
	}
	if before, ok := e.Pins.Held[id]; ok { // two prefill legs of one transfer
		e.Stats.DoubleReads++
		e.Free(before.Blocks)
	}
	e.Pin(id, &engine.Pin{Blocks: r.Blocks, Tokens: r.Computed, Lease: true, Deadline: e.Clock.Now() + e.Cfg.Mooncake.AbortTimeout})
	close(m.finished)
	m.finished = make(chan struct{})
	return nil
}

// Drop makes a decode leg that ends before it was scheduled tell prefill that it needs no KV (request_finished). The caller holds e.Mu.
func (m *mooncake) Drop(r *engine.Run, cause error) {
	if r.Remote == nil && !errors.Is(cause, engine.ErrEngineDead) {
		m.Rejected(r.Req.Params)
	}
}

// Rejected tells prefill the same for a decode leg that was refused before it reached the engine.
func (m *mooncake) Rejected(p *engine.ParamsIn) {
	if p.Decodes() && pulls(p) {
		m.Engine.Async.Spawn(func() { m.load(p, &mooncakeTransfer{ended: make(chan struct{})}) })
	}
}
