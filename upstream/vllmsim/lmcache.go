package vllmsim

import (
	"carryover/upstream/vllmsim/config"
	"context"
	"errors"
	"sync"
)

// lmcache is LMCacheConnectorV1 with enable_pd (LMCache 0.5.6, vllm_v1_adapter.py, pd_backend.py, pd_backend_async.py). A sender
// pushes the KV of each prompt to the receiver that the request names, chunk by chunk under a hash of the tokens, and announces it to a
// proxy over ZeroMQ. The receiver looks up each prompt by these hashes, without any params.
type lmcache struct {
	idle
	cfg   *config.LMCache
	found *chunks // chunks of a receiver

	// The members of a sender.
	links     *peers
	notifiers []*notifier // one for each rank that saves

	mu        sync.Mutex        // guards what follows; behind e.mu where both are held
	receivers map[string]string // engine ids by the address of the init port; each is learnt once
	stuck     bool              // the engine answers nothing any more
}

// lmcacheRun is a sender's knowledge of a request.
type lmcacheRun struct{ spec disaggSpec }

func newLMCache(e *engine) *lmcache {
	l := &lmcache{idle: idle{e}, cfg: &e.cfg.LMCache, found: newChunks(), links: newPeers(e.clock), receivers: make(map[string]string)}
	l.links.patience = 0
	if l.sends() {
		for range l.cfg.Savers() {
			n := newNotifier(e.proxyAddress)
			l.notifiers = append(l.notifiers, n)
			e.async.spawn(func() { n.run(e.ctx) })
		}
	}
	return l
}

func (l *lmcache) sends() bool { return l.engine.cfg.Role == "prefill" }

func (l *lmcache) stop() { l.links.close() }

// arrive ends a sender in mode "async" if a request has no spec; in "sync" the request is answered (both measured). A spec that
// lacks a member ends the sender in both modes (derived).
func (l *lmcache) arrive(r *run) error {
	if !l.sends() {
		return nil
	}
	spec, err := r.req.params.disagg()
	switch {
	case errors.Is(err, errNoSpec) && l.cfg.Mode == config.LMCacheSync:
		return nil
	case err != nil:
		l.engine.die()
		return errEngineDead
	}
	r.remote = &lmcacheRun{spec}
	return nil
}

// fetch makes a receiver look up a prompt except its last token (skip_last_n_tokens 1). It does not read what its own prefix cache holds.
func (l *lmcache) fetch(ctx context.Context, r *run) error {
	e, prompt := r.engine, r.req.prompt
	if l.sends() {
		return l.parkIfStuck(ctx, r)
	}
	content, landed := l.found.take(chunkKeys(r.req.seed^r.req.params.tags(), prompt[:len(prompt)-1], l.cfg.ChunkSize, true), r.local)
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(content) <= r.local {
		return nil
	}
	for i := r.local; i < len(content); i++ {
		*e.pool.Slot(r.blocks, i) = content[i]
	}
	r.external = len(content) - r.local
	e.stats.Loads++
	if !landed {
		e.stats.EarlyReads++
	}
	return nil
}

// prompted makes a sender push the KV of the prompt. Its ranks connect to a receiver within the engine's step, when they first meet its
// address. If nobody listens there, the engine answers nothing any more, while /health stays 200 (measured). In mode "sync" the transfer
// is part of the step too, and a receiver that was killed stops the engine (measured); in "async" the answer comes, and nothing else.
func (l *lmcache) prompted(ctx context.Context, r *run) error {
	known, ok := r.remote.(*lmcacheRun)
	if !ok {
		return nil
	}
	missing := len(r.req.prompt) - min(r.local+r.external, len(r.req.prompt)-1)
	if most := l.cfg.MaxBatchedTokens; l.cfg.Mode == config.LMCacheAsync && most > 0 && missing > most {
		return nil // computed in parts: the receiver refuses what the first part announces ("protocol violation", measured)
	}
	if err := l.parkIfStuck(ctx, r); err != nil {
		return err
	}
	h := l.newHandover(r, known.spec)
	for rank := range h.ranks {
		if l.introduce(h, rank) != nil {
			return l.stickAndPark(ctx, r)
		}
	}
	l.engine.count(func(s *Stats) { s.Pushing++ }) // before the answer: in "async" the answer does not wait
	if l.cfg.Mode == config.LMCacheAsync {
		l.engine.async.spawn(func() { l.deliver(h) })
		return nil
	}
	if !l.deliver(h) {
		return l.stickAndPark(ctx, r)
	}
	return context.Cause(ctx)
}

// finish answers with the first token if the request asks for it. No blocks stay pinned. The caller holds e.mu.
func (l *lmcache) finish(r *run) *paramsOut {
	l.engine.free(r.blocks)
	if known, ok := r.remote.(*lmcacheRun); ok && known.spec.FirstToken {
		return &paramsOut{other: firstToken{r.output[0]}}
	}
	return nil
}

// drop ends a sender if a request that asked for its first token is aborted before that token: request_finished
// (vllm_v1_adapter.py) looks the token up without a check. A stuck sender takes no aborts. Both are measured. The caller holds e.mu.
func (l *lmcache) drop(r *run, _ error) {
	known, ok := r.remote.(*lmcacheRun)
	if !ok || !known.spec.FirstToken || len(r.output) > 0 || l.engine.ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.stuck {
		l.engine.dieInStep()
	}
}

// answer performs a sender's request to a receiver.
func (l *lmcache) answer(req sideRequest) (sideReply, bool) {
	if req.Push == nil {
		return sideReply{}, false
	}
	reply := sideReply{EngineID: l.engine.id}
	if req.Push.Op != pushInit && req.EngineID != l.engine.id {
		reply.Err = errEngineMismatch.Error() // the sender asks for memory of a process that is gone
		return reply, true
	}
	switch p := req.Push; p.Op {
	case pushInit:
	case pushAllocate:
		if !l.found.allocate(p.Keys, p.Rank, l.cfg.BufferChunks) {
			reply.Err = errNoRoom.Error()
		}
	case pushLand:
		l.found.land(p.Keys, p.Content, p.Rank, p.Ranks)
	case pushCancel:
		l.found.forget(p.Keys)
	}
	return reply, true
}

func (l *lmcache) parkIfStuck(ctx context.Context, r *run) error {
	l.mu.Lock()
	stuck := l.stuck
	l.mu.Unlock()
	if !stuck {
		return nil
	}
	return r.park(ctx)
}

func (l *lmcache) stickAndPark(ctx context.Context, r *run) error {
	l.mu.Lock()
	l.stuck = true
	l.mu.Unlock()
	return r.park(ctx)
}
