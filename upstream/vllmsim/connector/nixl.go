package connector

import (
	"context"
	"errors"

	"carryover/upstream/vllmsim/engine"
)

// nixl is NixlConnector in pull mode.
type nixl struct {
	engine.Idle
	peersKnown map[string]peerRegistration // by engine id; the engine's mutex guards it
}

func newNIXL(e *engine.Engine) *nixl {
	return &nixl{Idle: engine.Idle{Engine: e}, peersKnown: map[string]peerRegistration{}}
}

type nixlRun struct {
	ticket ticket // blocks of another engine, the zero value for none
	unread bool   // the request has not read the blocks yet, but should
}

func nixlOf(r *engine.Run) *nixlRun {
	known, _ := r.Remote.(*nixlRun)
	return known
}

func (n *nixl) Arrive(r *engine.Run) error {
	p, known := r.Req.Params, &nixlRun{}
	r.Remote = known
	if p.Decodes() || p.Prefills() && p.Truthy("remote_block_ids") {
		var err error
		if known.ticket, err = ticketOf(p); err != nil && (p.Decodes() || p.Complete()) {
			n.Engine.Die()
			return engine.ErrEngineDead
		}
	}
	known.unread = p.Decodes()
	return nil
}

func (n *nixl) Beat(ctx context.Context, r *engine.Run) {
	if r.Req.Params.Decodes() {
		n.prolong(ctx, nixlOf(r).ticket)
	}
}

// Fetch decides like get_num_new_matched_tokens (nixl/pull_scheduler.py, 0.32), and reads remote blocks if there are any.
func (n *nixl) Fetch(ctx context.Context, r *engine.Run) error {
	e, p, prompt, remote := r.Engine, r.Req.Params, len(r.Req.Prompt), nixlOf(r).ticket
	switch {
	case p.Decodes():
		if !p.Complete() {
			// No transfer begins, and the request waits for one.
			return r.Park(ctx)
		}
		return n.load(ctx, r, remote, prompt-r.Local)
	case !p.Prefills() || !p.Truthy("remote_block_ids") || !p.Complete():
		return nil
	}
	count := min(remote.tokens, prompt) - r.Local
	switch {
	case !e.Live.Load().Bidirectional && count > 0:
		// The scheduler defers the request for a pull that this configuration never starts.
		return r.Park(ctx)
	case !e.Live.Load().Bidirectional:
		return nil
	case count <= 0 || count < e.Cfg.RecomputeThreshold:
		side := done(remote)
		if r.Req.HandsBack { // its ids and salt also matter for KV that is computed instead
			introduce(r, &side, remote)
		}
		n.notifyLater(side, remote)
		return nil
	default:
		return n.load(ctx, r, remote, count)
	}
}

// Finish does what request_finished does (nixl/base_scheduler.py, 0.32): a request with params leaves its blocks pinned, and its answer says
// where they are. The caller holds e.Mu.
func (n *nixl) Finish(r *engine.Run) *engine.ParamsOut {
	e := n.Engine
	prefills := r.Req.Params.Prefills()
	if r.Req.Params == nil || !prefills && !e.Live.Load().Bidirectional {
		e.Free(r.Blocks)
		return nil
	}
	p := &engine.Pin{Blocks: r.Blocks, Tokens: r.Computed, Salt: r.Req.Owner(), Lease: prefills, Deadline: e.Clock.Now() + e.Cfg.KVTTL}
	if r.Req.HandsBack {
		e.Stats.LeasedHandBacks++
	}
	out := &engine.ParamsOut{
		DoRemotePrefill: prefills,
		DoRemoteDecode:  !prefills,
		RemoteBlockIDs:  [][]int32{r.Blocks},
		RemoteEngineID:  e.ID,
		RemoteRequestID: r.Req.ID,
		RemoteHost:      e.Cfg.Host,
		RemotePort:      e.SidePort,
		TPSize:          1,
		DCPSize:         1,
		PPSize:          1,
		RemoteNumTokens: r.Computed,
		Generation:      e.Generation(),
		TransferMode:    "pull",
	}
	if prefills {
		p.Deadline = e.Clock.Now() + e.Cfg.Lease
		cached := r.CachedTokens()
		out.PrefillCachedTokens = &cached
	} else {
		expiry := p.Deadline.Seconds()
		out.RemoteBlocksExpiry = &expiry
	}
	e.Pin(r.Req.ID, p)
	return out
}

// Drop notifies the owner of remote blocks that a decode leg never read, so that the owner frees them.
func (n *nixl) Drop(r *engine.Run, cause error) {
	if known := nixlOf(r); known != nil && known.unread && !errors.Is(cause, engine.ErrLoadFailed) {
		n.notifyLater(done(known.ticket), known.ticket)
	}
}

// Rejected notifies the owner of a decode leg's blocks that the request was refused before it reached the engine (#41269: a pre-aborted
// request is submitted so that prefill may free its blocks).
func (n *nixl) Rejected(p *engine.ParamsIn) {
	if !p.Decodes() || !p.Complete() {
		return
	}
	if t, err := ticketOf(p); err == nil {
		n.notifyLater(done(t), t)
	}
}
