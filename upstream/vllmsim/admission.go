package vllmsim

import (
	"carryover/upstream/vllmsim/fault"
	"carryover/upstream/vllmsim/kv"
	"context"
	"errors"
	"strings"
)

// request is what the HTTP side asks of the engine core, without any HTTP.
type request struct {
	id        string // with vLLM's random suffix; becomes remote_request_id
	prompt    []int32
	computed  []int32  // the ids that the engine computes; they equal prompt unless FaultOtherIDs changes them
	media     []uint64 // by position: a hash of the media at a token, see media.go; nil for text alone
	salt      string
	adapter   string // "" for none
	params    *paramsIn
	maxTokens int
	minTokens int
	stopIDs   []int32
	ignoreEOS bool
	variant   int    // index among the children of n > 1
	sibling   bool   // a later sequence of its HTTP request; one goroutine runs them all, so it must not wait for the first one's place
	seed      uint64 // stands for the weights; an adapter changes it
	fault     *fault.Active
	handsBack bool
	releases  bool
	holds     *holds  // points at which hand-backs stop
	slowness  float64 // factor of the time that the engine takes
}

// tenant returns the cache_salt of the request.
func (r *request) tenant() string { return strings.TrimPrefix(r.salt, r.adapter+"\x00") }

// owner returns the part of the cache_salt that tells one tenant's KV from another's: the text behind the first ~. A proxy may put
// a salt of its own before the tenant's, to keep requests away from KV that an engine cached earlier.
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
	// ctx ends some time after the engine's ctx. A request must not use that delay on an engine that is already dead.
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
	r := &run{engine: e, req: req, hashes: kv.BlockHashes(req.salt, req.prompt, req.media, e.cfg.BlockSize)}
	if err := r.admit(ctx); err != nil {
		r.drop(err)
		return nil, err
	}
	return r, nil
}

// admit gets blocks for r and fills them with the KV of the prompt.
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
