package connector

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"carryover/upstream/vllmsim/config"
	"carryover/upstream/vllmsim/engine"
)

// lmcache is LMCacheConnectorV1 with enable_pd (LMCache 0.5.6, vllm_v1_adapter.py, pd_backend.py, pd_backend_async.py). A sender pushes the
// KV of each prompt to the receiver that the request names, in chunks under a hash of the tokens. It announces the KV to a proxy over ZeroMQ.
// The receiver looks up each prompt by these hashes, without any params. A stuck sender stays stuck until it is restarted; only its silence
// was measured. A sender whose receiver has no space still answers, however much KV waits to be sent.
type lmcache struct {
	engine.Idle
	cfg   *config.LMCache
	found *chunks // chunks of a receiver

	// The members of a sender.
	links     *engine.Peers
	notifiers []*notifier // one for each rank that saves

	receivers sync.Map    // engine ids by the address of the init port; each is learned once
	stuck     atomic.Bool // the engine answers nothing any more
}

func newLMCache(e *engine.Engine) *lmcache {
	l := &lmcache{Idle: engine.Idle{Engine: e}, cfg: &e.Cfg.LMCache, found: &chunks{held: make(map[uint64]*kvChunk)}, links: engine.NewPeers(e.Clock)}
	l.links.Patience = 0
	if l.sends() {
		for range l.cfg.Savers() {
			n := newNotifier(l.proxyAddress)
			l.notifiers = append(l.notifiers, n)
			e.Async.Spawn(func() { n.run(e.Ctx) })
		}
	}
	return l
}

func (l *lmcache) sends() bool { return l.Engine.Cfg.Role == "prefill" }

func (l *lmcache) Stop() { l.links.Close() }

func (l *lmcache) Gauges(s *engine.Stats) { s.ChunksHeld = l.found.count() }

// Arrive decides about the spec. In mode "async" a request without a spec ends a sender; in "sync" it is answered (both measured). A spec
// that lacks a member ends a sender in both modes (derived).
func (l *lmcache) Arrive(r *engine.Run) error {
	if !l.sends() {
		return nil
	}
	spec, err := disagg(r.Req.Params)
	switch {
	case errors.Is(err, errNoSpec) && l.cfg.Mode == config.LMCacheSync:
		return nil
	case err != nil:
		l.Engine.Die()
		return engine.ErrEngineDead
	}
	r.Remote = spec
	return nil
}

// Fetch makes a receiver look up the prompt without its last token (skip_last_n_tokens 1). It skips what its own prefix cache holds.
func (l *lmcache) Fetch(ctx context.Context, r *engine.Run) error {
	prompt := r.Req.Prompt
	if l.sends() {
		return l.parkIfStuck(ctx, r)
	}
	content, landed := l.found.take(chunkKeys(r.Req.Seed^tags(r.Req.Params), prompt[:len(prompt)-1], l.cfg.ChunkSize, true), r.Local)
	if r.Fill(content) && !landed {
		r.Engine.Count(&r.Engine.Stats.EarlyReads, 1)
	}
	return nil
}

// Prompted makes a sender push the KV of the prompt. Its ranks connect to a new receiver within the engine's step. If nobody listens there,
// the engine answers nothing any more, while /health stays 200 (measured). In mode "sync" the transfer is part of the step too, and a killed
// receiver stops the engine (measured). In "async" the answer comes, but no announcement.
func (l *lmcache) Prompted(ctx context.Context, r *engine.Run) error {
	spec, ok := r.Remote.(disaggSpec)
	if !ok {
		return nil
	}
	missing := len(r.Req.Prompt) - min(r.Local+r.External, len(r.Req.Prompt)-1)
	if most := l.cfg.MaxBatchedTokens; l.cfg.Mode == config.LMCacheAsync && most > 0 && missing > most {
		return nil // computed in parts: the receiver refuses what the first part announces ("protocol violation", measured)
	}
	if err := l.parkIfStuck(ctx, r); err != nil {
		return err
	}
	h := l.newHandover(r, spec)
	for rank := range h.ranks {
		if l.introduce(h, rank) != nil {
			return l.stickAndPark(ctx, r)
		}
	}
	l.Engine.Count(&l.Engine.Stats.Pushing, 1) // before the answer: in "async" the answer does not wait
	if l.cfg.Mode == config.LMCacheAsync {
		l.Engine.Async.Spawn(func() { l.deliver(h) })
		return nil
	}
	if !l.deliver(h) {
		return l.stickAndPark(ctx, r)
	}
	return context.Cause(ctx)
}

// Finish answers with the first token if the request asks for it. No blocks stay pinned. The caller holds e.Mu.
func (l *lmcache) Finish(r *engine.Run) *engine.ParamsOut {
	l.Engine.Free(r.Blocks)
	if spec, ok := r.Remote.(disaggSpec); ok && spec.FirstToken {
		return &engine.ParamsOut{Other: firstToken{r.Output[0]}}
	}
	return nil
}

// Drop ends a sender if a request that asked for its first token is aborted before that token: request_finished (vllm_v1_adapter.py) looks it
// up without a check. A stuck sender takes no aborts. Both are measured. The caller holds e.Mu.
func (l *lmcache) Drop(r *engine.Run, _ error) {
	spec, ok := r.Remote.(disaggSpec)
	if ok && spec.FirstToken && len(r.Output) == 0 && l.Engine.Ctx.Err() == nil && !l.stuck.Load() {
		l.Engine.DieInStep()
	}
}

// Answer performs a sender's request to a receiver.
func (l *lmcache) Answer(req engine.SideRequest) (engine.SideReply, bool) {
	if req.Push == nil {
		return engine.SideReply{}, false
	}
	reply := engine.SideReply{EngineID: l.Engine.ID}
	if req.Push.Op != engine.PushInit && req.EngineID != l.Engine.ID {
		reply.Err = engine.ErrEngineMismatch.Error() // the sender asks for memory of a process that is gone
		return reply, true
	}
	switch p := req.Push; p.Op {
	case engine.PushInit:
	case engine.PushAllocate:
		l.found.allocate(p.Keys, p.Rank)
	case engine.PushLand:
		l.found.land(p.Keys, p.Content, p.Rank, p.Ranks)
	case engine.PushCancel:
		l.found.forget(p.Keys)
	}
	return reply, true
}

func (l *lmcache) parkIfStuck(ctx context.Context, r *engine.Run) error {
	if !l.stuck.Load() {
		return nil
	}
	return r.Park(ctx)
}

func (l *lmcache) stickAndPark(ctx context.Context, r *engine.Run) error {
	l.stuck.Store(true)
	return r.Park(ctx)
}
