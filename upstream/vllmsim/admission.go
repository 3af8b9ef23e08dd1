package vllmsim

import (
	"context"
	"errors"
	"strings"
)

// request is what the engine core is asked for, free of HTTP.
type request struct {
	id        string // with vLLM's random suffix; becomes remote_request_id
	prompt    []int32
	computed  []int32  // the ids that are computed in place of prompt, which are the same unless FaultOtherIDs befalls them
	media     []uint64 // by position, what a token stands for beyond its id; nil for text alone
	salt      string
	adapter   string // "" for none
	params    *paramsIn
	maxTokens int
	minTokens int
	stopIDs   []int32
	ignoreEOS bool
	variant   int    // index among the children of n > 1
	sibling   bool   // a later sequence of its HTTP request: one goroutine runs them, so it may wait for none of the first one's place
	seed      uint64 // of the weights, which an adapter changes
	fault     *activeFault
	handsBack bool
	releases  bool
	holds     *holds  // where a hand-back stops
	slowness  float64 // how many times as long the engine takes
}

// tenant is the cache_salt that the request came with.
func (r *request) tenant() string { return strings.TrimPrefix(r.salt, r.adapter+"\x00") }

// owner is what of the cache_salt tells one tenant's KV from another's: what stands behind the first ~. A proxy may put a salt of its own
// before the tenant's, to keep requests from what an engine has cached before.
func (r *request) owner() string {
	salt := r.tenant()
	if _, own, found := strings.Cut(salt, "~"); found {
		return own
	}
	return salt
}

// start runs a request up to the point where its first token can be sampled: blocks, remote KV, prompt.
// The error is a cause of ctx, errLoadFailed or errEngineDead.
func (e *engine) start(ctx context.Context, req *request) (*run, error) {
	// ctx follows the engine's with some delay, which a request to an engine that is dead already must not use.
	if err := errors.Join(context.Cause(e.ctx), context.Cause(ctx)); err != nil {
		return nil, err
	}
	e.count(func(s *Stats) {
		s.Requests++
		s.Running++
		if req.handsBack {
			s.HandBacks++
		}
	})
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
	if err := e.connector.arrive(r); err != nil {
		return err
	}
	beat := func() { e.connector.beat(ctx, r) }
	if err := e.wait(ctx, r.timing().Overhead, beat); err != nil {
		return err
	}
	if err := r.hold(ctx, HandBackQueued); err != nil {
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
	if err := e.connector.fetch(ctx, r); err != nil {
		return err
	}
	missing := len(req.prompt) - min(r.local+r.external, len(req.prompt)-1)
	if err := r.compute(ctx, missing, beat); err != nil {
		return err
	}
	r.computePrompt()
	if err := e.connector.prompted(ctx, r); err != nil {
		return err
	}
	return r.hold(ctx, HandBackComputed)
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
