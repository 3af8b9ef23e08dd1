package vllmsim

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// request is what the engine core is asked for, free of HTTP.
type request struct {
	id        string // with vLLM's random suffix; becomes remote_request_id
	prompt    []int32
	computed  []int32  // the ids that are computed in place of prompt, which are the same unless FaultOtherIDs befalls them
	media     []uint64 // by position, what a token stands for beyond its id; nil for text alone
	salt      string
	params    *paramsIn
	maxTokens int
	minTokens int
	stopIDs   []int32
	ignoreEOS bool
	variant   int     // index among the children of n > 1
	sibling   bool    // a later sequence of its HTTP request: one goroutine runs them, so it may wait for none of the first one's place
	seed      uint64  // of the weights, which an adapter changes
	slowness  float64 // how many times as long the engine takes
}

// start runs a request up to the point where its first token can be sampled: blocks, remote KV, prompt.
// The error is a cause of ctx, errLoadFailed or errEngineDead.
func (e *engine) start(ctx context.Context, req *request) (*run, error) {
	// ctx follows the engine's with some delay, which a request to an engine that is dead already must not use.
	if err := errors.Join(context.Cause(e.ctx), context.Cause(ctx)); err != nil {
		return nil, err
	}
	e.count(func(s *Stats) { s.Requests++; s.Running++ })
	r := &run{engine: e, req: req, hashes: blockHashes(req.salt, req.prompt, req.media, e.cfg.BlockSize)}
	if err := r.admit(ctx); err != nil {
		r.drop(err)
		return nil, err
	}
	return r, nil
}

// admit fills r with the KV of the prompt.
func (r *run) admit(ctx context.Context) error {
	e, req := r.engine, r.req
	var remote ticket
	if req.params.decodes() || req.params.prefills() && req.params.truthy("remote_block_ids") {
		var err error
		if remote, err = req.params.ticket(); err != nil {
			if req.params.decodes() || req.params.complete() {
				e.die()
				return errEngineDead
			}
		}
	}
	beat := func() {}
	if req.params.decodes() {
		r.unread = &remote
		beat = func() { e.beat(ctx, remote) }
	}
	if err := e.wait(ctx, r.timing().Overhead, beat); err != nil {
		return err
	}
	size := e.cfg.BlockSize
	// The last prompt token is always computed, because sampling needs its output.
	usable := r.hashes[:(len(req.prompt)-1)/size]
	hits, err := r.letIn(ctx, need{total: ceilDiv(len(req.prompt), size), hashes: usable}, beat)
	if err != nil {
		return err
	}
	r.local = hits * size
	if err := r.fetch(ctx, remote); err != nil {
		return err
	}
	missing := len(req.prompt) - min(r.local+r.external, len(req.prompt)-1)
	if err := r.compute(ctx, missing, beat); err != nil {
		return err
	}
	r.computePrompt()
	return nil
}

// fetch decides as get_num_new_matched_tokens does (nixl/pull_scheduler.py, 0.32) and reads remote blocks if any.
func (r *run) fetch(ctx context.Context, remote ticket) error {
	e, p, prompt := r.engine, r.req.params, len(r.req.prompt)
	switch {
	case p.decodes():
		if !p.complete() {
			// No transfer is started and the request waits for one.
			return r.park(ctx)
		}
		return r.load(ctx, remote, prompt-r.local)
	case !p.prefills() || !p.truthy("remote_block_ids") || !p.complete():
		return nil
	}
	count := min(remote.tokens, prompt) - r.local
	switch {
	case !e.live.Load().Bidirectional && count > 0:
		// The scheduler defers the request for a pull that this configuration never starts.
		return r.park(ctx)
	case !e.live.Load().Bidirectional:
		return nil
	case count <= 0 || count < e.cfg.RecomputeThreshold:
		e.notifyLater(remote)
		return nil
	default:
		return r.load(ctx, remote, count)
	}
}

// load reads the KV of count tokens behind the locally cached ones.
//
// As _apply_prefix_caching does, it takes the last n of the remote blocks, n being the local blocks to fill. These are
// the right ones only if the remote list ends where the local one does. Fewer remote than local blocks fail an
// assertion and end the engine.
func (r *run) load(ctx context.Context, remote ticket, count int) error {
	e, size := r.engine, r.engine.cfg.BlockSize
	first, end := r.local/size, ceilDiv(r.local+count, size)
	if end-first > len(remote.blocks) {
		e.die()
		return errEngineDead
	}
	wanted := remote.blocks[len(remote.blocks)-(end-first):]
	// The transfer is not interrupted when the client goes: vLLM keeps the blocks until it has been reported.
	var content []uint64
	var err error
	r.deferred(func(s *Stats) *int { return &s.Loading }, func() {
		content, err = e.pull(context.WithoutCancel(ctx), remote, wanted, r.timing().TransferPerBlock)
	})
	if err != nil {
		e.count(func(s *Stats) { s.LoadFailures++ })
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		if e.live.Load().LoadFailurePolicy == PolicyRecompute {
			return r.park(ctx)
		}
		return errors.Join(errLoadFailed, err)
	}
	r.external, r.unread = count, nil
	e.mu.Lock()
	e.stats.Loads++
	for i, id := range r.blocks[first:end] {
		copy(e.pool.slots(id), content[i*size:(i+1)*size])
	}
	e.mu.Unlock()
	_, err = r.letIn(ctx, need{ahead: true}, func() {})
	return err
}

// pull copies remote blocks and tells their owner. It ends early only with the engine.
func (e *engine) pull(ctx context.Context, remote ticket, blocks []int32, perBlock time.Duration) ([]uint64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(e.ctx, func() { cancel(context.Cause(e.ctx)) })()

	addr := peerAddress(remote.host, remote.port)
	side := sideRequest{Op: opHandshake, EngineID: remote.engineID, RequestID: remote.requestID}
	hello, err := e.peers.call(ctx, addr, side)
	if errors.Is(err, errEngineMismatch) {
		return nil, errors.Join(err, e.clock.wait(ctx, mismatchDelay))
	}
	if err != nil {
		return nil, err
	}
	if hello.BlockSize != e.cfg.BlockSize {
		return nil, fmt.Errorf("handshake: block size %d there, %d here", hello.BlockSize, e.cfg.BlockSize)
	}
	if remote.expiry != 0 && remote.expiry-hello.Now < expiryMargin {
		e.count(func(s *Stats) { s.DeclinedReads++ })
		return nil, errDeclined
	}
	side.Op, side.Blocks = opRead, blocks
	data, err := e.peers.call(ctx, addr, side)
	if err != nil {
		return nil, err
	}
	if err := e.wait(ctx, time.Duration(len(blocks))*perBlock, func() { e.beat(ctx, remote) }); err != nil {
		return nil, err
	}
	e.notify(ctx, remote)
	return data.Content, nil
}

func (e *engine) beat(ctx context.Context, remote ticket) {
	// A heartbeat that gets lost shortens the lease and nothing else.
	_, _ = e.peers.call(ctx, peerAddress(remote.host, remote.port),
		sideRequest{Op: opHeartbeat, EngineID: remote.engineID, RequestID: remote.requestID})
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
