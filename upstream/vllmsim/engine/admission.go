package engine

import (
	"context"
	"errors"
	"strings"

	"carryover/upstream/vllmsim/fault"
	"carryover/upstream/vllmsim/kv"
)

// Request is a request to the engine core, without any HTTP.
type Request struct {
	ID       string // with vLLM's random suffix; becomes remote_request_id
	Prompt   []int32
	Computed []int32  // the ids that the engine computes; they equal prompt unless the fault OtherIDs changes them
	Media    []uint64 // hash of the media at each position, see package template; nil for text alone
	Salt     string
	Adapter  string // "" for none
	Params   *ParamsIn
	Sibling  bool   // a later sequence of its HTTP request; one goroutine runs all of them, so it must not wait for the first one's place
	Seed     uint64 // stands for the weights; an adapter changes it

	// Which tokens the answer has.
	MaxTokens int
	MinTokens int
	StopIDs   []int32
	IgnoreEOS bool
	Variant   int // index among the children of n > 1

	// What the simulator recognises in a request, and vLLM does not.
	HandsBack bool
	Releases  bool

	// What a real engine does not have.
	Fault    *fault.Active
	Holds    *Holds  // points at which hand-backs stop
	Slowness float64 // factor of the time that the engine takes
}

func (r *Request) tenant() string { return strings.TrimPrefix(r.Salt, r.Adapter+"\x00") }

// Owner returns the part of the cache_salt that separates tenants: the text behind the first ~. A proxy may put a salt of its own before it,
// to keep requests away from KV that an engine cached earlier.
func (r *Request) Owner() string {
	salt := r.tenant()
	if _, own, found := strings.Cut(salt, "~"); found {
		return own
	}
	return salt
}

// Alone reports whether no other request uses what this one reads: it has one token, and a salt of its own before the tenant's. A proxy lets
// such a request take blocks that may already be free.
func (r *Request) Alone() bool { return r.MaxTokens == 1 && strings.Contains(r.tenant(), "~") }

// Start runs a request until its first token can be sampled: blocks, remote KV, prompt. The error is a cause of ctx, ErrLoadFailed or
// ErrEngineDead.
func (e *Engine) Start(ctx context.Context, req *Request) (*Run, error) {
	// ctx ends some time after e.Ctx. Meanwhile no request may use a dead engine.
	if err := errors.Join(context.Cause(e.Ctx), context.Cause(ctx)); err != nil {
		return nil, err
	}
	e.Mu.Lock()
	e.Stats.Requests++
	e.Stats.Running++
	if req.HandsBack {
		e.Stats.HandBacks++
	}
	e.Mu.Unlock()
	r := &Run{Engine: e, Req: req, hashes: kv.BlockHashes(req.Salt, req.Prompt, req.Media, e.Cfg.BlockSize)}
	if err := r.admit(ctx); err != nil {
		r.Drop(err)
		return nil, err
	}
	return r, nil
}

func (r *Run) admit(ctx context.Context) error {
	e, req := r.Engine, r.Req
	if err := e.Connector.Arrive(r); err != nil {
		return err
	}
	beat := func() { e.Connector.Beat(ctx, r) }
	if err := e.Wait(ctx, r.Timing().Overhead, beat); err != nil {
		return err
	}
	if err := r.Hold(ctx, HandBackQueued); err != nil {
		return err
	}
	size := e.Cfg.BlockSize
	// The last prompt token is always computed: sampling needs its output.
	usable := r.hashes[:(len(req.Prompt)-1)/size]
	hits, err := r.LetIn(ctx, Need{total: CeilDiv(len(req.Prompt), size), hashes: usable}, beat)
	if err != nil {
		return err
	}
	r.Local = hits * size
	if err := e.Connector.Fetch(ctx, r); err != nil {
		return err
	}
	missing := len(req.Prompt) - min(r.Local+r.External, len(req.Prompt)-1)
	if err := r.compute(ctx, missing, beat); err != nil {
		return err
	}
	r.computePrompt()
	if err := e.Connector.Prompted(ctx, r); err != nil {
		return err
	}
	return r.Hold(ctx, HandBackComputed)
}

// CeilDiv returns a / b, rounded up.
func CeilDiv(a, b int) int { return (a + b - 1) / b }
