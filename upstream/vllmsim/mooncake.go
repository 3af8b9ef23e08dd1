package vllmsim

import (
	"context"
	"errors"
	"slices"
)

// mooncake is MooncakeConnector (mooncake_connector.py, 0.32; times and cases were measured over TCP). The transfer_id that both legs
// carry identifies its KV. Its answers have no kv_transfer_params.
type mooncake struct {
	idle
	// The engine's mutex guards what follows.
	finished chan struct{}     // closed and replaced when a prefill has left KV
	known    map[string]string // worker addresses of other engines by engine id; they are never forgotten
}

func newMooncake(e *engine) *mooncake {
	return &mooncake{idle: idle{e}, finished: make(chan struct{}), known: make(map[string]string)}
}

// pulls reports whether a decode leg has the keys that a transfer needs. As in vLLM, their values don't matter.
func (p *paramsIn) pulls() bool {
	return p.has("remote_engine_id") && p.has("remote_bootstrap_addr") && p.has("transfer_id")
}

func (p *paramsIn) has(key string) bool {
	_, ok := p.members[key]
	return ok
}

// text returns a member that is a string, and "" for any other.
func (p *paramsIn) text(key string) (value string) {
	if p != nil {
		p.read(key, &value)
	}
	return value
}

// fetch makes prefill push the KV of all tokens that the own prefix cache lacks, and waits for it.
func (m *mooncake) fetch(ctx context.Context, r *run) error {
	e, p := m.engine, r.req.params
	if !p.decodes() {
		return nil
	}
	r.remote = m // from here on drop does not notify prefill, whatever happens to the request
	if !p.pulls() {
		return m.never(ctx, r)
	}
	t := &mooncakeTransfer{ended: make(chan struct{}), blocks: slices.Clone(r.blocks[r.local/e.cfg.BlockSize:]), perBlock: r.timing().TransferPerBlock}
	e.async.spawn(func() { m.load(p, t) })
	r.deferred(func(s *Stats) *int { return &s.Loading }, func() {
		select {
		case <-t.ended:
		case <-ctx.Done():
		}
	})
	e.mu.Lock()
	select {
	case <-t.ended:
	default:
		// The scheduler never frees blocks that are still being written to, even if the client has gone.
		t.orphans, r.blocks = r.blocks, nil
	}
	e.mu.Unlock()
	switch {
	case r.blocks == nil:
		return context.Cause(ctx)
	case t.err != nil:
		e.count(func(s *Stats) { s.LoadFailures++ })
		return errors.Join(errLoadFailed, t.err)
	}
	r.external = len(r.req.prompt) - r.local
	e.count(func(s *Stats) { s.Loads++ })
	_, err := r.letIn(ctx, need{ahead: true}, func() {})
	return err
}

// never handles a decode leg that lacks one of the keys: no transfer begins, and the leg waits for one. If its client then disconnects and
// it has a transfer_id, the engine dies of a KeyError (measured without remote_engine_id; remote_bootstrap_addr is read beside it).
func (m *mooncake) never(ctx context.Context, r *run) error {
	err := r.park(ctx)
	if r.req.params.truthy("transfer_id") && m.engine.ctx.Err() == nil {
		m.engine.die()
	}
	return err
}

// finish keeps the KV of a prefill leg that its length has ended (request_finished: FINISHED_LENGTH_CAPPED). The caller holds e.mu.
func (m *mooncake) finish(r *run) *paramsOut {
	e, id := m.engine, r.req.params.text("transfer_id")
	if !r.req.params.prefills() || id == "" || !r.capped {
		e.free(r.blocks)
		return nil
	}
	if before, ok := e.pins.held[id]; ok { // two prefill legs of one transfer
		e.stats.DoubleReads++
		e.free(before.blocks)
	}
	e.pin(id, &pin{blocks: r.blocks, tokens: r.computed, lease: true, deadline: e.clock.now() + e.cfg.Mooncake.AbortTimeout})
	close(m.finished)
	m.finished = make(chan struct{})
	return nil
}

// drop makes a decode leg that ends before it was scheduled tell prefill that it wants no KV (request_finished). The caller holds e.mu.
func (m *mooncake) drop(r *run, cause error) {
	if r.remote == nil && !errors.Is(cause, errEngineDead) {
		m.rejected(r.req.params)
	}
}

// rejected tells prefill the same for a decode leg that was refused before it reached the engine.
func (m *mooncake) rejected(p *paramsIn) {
	if p.decodes() && p.pulls() {
		m.engine.async.spawn(func() { m.load(p, &mooncakeTransfer{ended: make(chan struct{})}) })
	}
}
