package vllmsim

import (
	"context"
	"errors"
)

// nixl is NixlConnector in pull mode.
type nixl struct{ idle }

// nixlRun is the connector's knowledge of a request.
type nixlRun struct {
	ticket ticket // blocks of another engine, the zero value for none
	unread bool   // the request should have read the blocks and has not
}

func (r *run) nixl() *nixlRun {
	known, _ := r.remote.(*nixlRun)
	return known
}

func (n *nixl) arrive(r *run) error {
	p, known := r.req.params, &nixlRun{}
	r.remote = known
	if p.decodes() || p.prefills() && p.truthy("remote_block_ids") {
		var err error
		if known.ticket, err = p.ticket(); err != nil && (p.decodes() || p.complete()) {
			n.engine.die()
			return errEngineDead
		}
	}
	known.unread = p.decodes()
	return nil
}

func (n *nixl) beat(ctx context.Context, r *run) {
	if r.req.params.decodes() {
		n.engine.beat(ctx, r.nixl().ticket)
	}
}

// fetch decides as get_num_new_matched_tokens does (nixl/pull_scheduler.py, 0.32), and reads remote blocks if there are any.
func (n *nixl) fetch(ctx context.Context, r *run) error {
	e, p, prompt, remote := r.engine, r.req.params, len(r.req.prompt), r.nixl().ticket
	switch {
	case p.decodes():
		if !p.complete() {
			// No transfer begins, and the request waits for one.
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
		side := done(remote)
		if r.req.handsBack { // its ids and its salt also matter for KV that is computed instead
			r.introduce(&side, remote)
		}
		e.notifyLater(side, remote)
		return nil
	default:
		return r.load(ctx, remote, count)
	}
}

// finish does as request_finished does (nixl/base_scheduler.py, 0.32): a request with params leaves its blocks
// pinned and says where they are. The caller holds e.mu.
func (n *nixl) finish(r *run) *paramsOut {
	e := n.engine
	prefills := r.req.params.prefills()
	if r.req.params == nil || !prefills && !e.live.Load().Bidirectional {
		e.free(r.blocks)
		return nil
	}
	p := &pin{blocks: r.blocks, tokens: r.computed, salt: r.req.owner(), lease: prefills, deadline: e.clock.now() + e.cfg.KVTTL}
	if r.req.handsBack {
		e.stats.LeasedHandBacks++
	}
	out := &paramsOut{
		DoRemotePrefill: prefills,
		DoRemoteDecode:  !prefills,
		RemoteBlockIDs:  [][]int32{r.blocks},
		RemoteEngineID:  e.id,
		RemoteRequestID: r.req.id,
		RemoteHost:      e.cfg.Host,
		RemotePort:      e.sidePort,
		TPSize:          1,
		DCPSize:         1,
		PPSize:          1,
		RemoteNumTokens: r.computed,
		Generation:      e.generation(),
		TransferMode:    "pull",
	}
	if prefills {
		p.deadline = e.clock.now() + e.cfg.Lease
		cached := r.cachedTokens()
		out.PrefillCachedTokens = &cached
	} else {
		expiry := p.deadline.Seconds()
		out.RemoteBlocksExpiry = &expiry
	}
	e.pin(r.req.id, p)
	return out
}

// drop tells the owner of remote blocks if a decode leg never read them; the owner then frees them.
func (n *nixl) drop(r *run, cause error) {
	if known := r.nixl(); known != nil && known.unread && !errors.Is(cause, errLoadFailed) {
		n.engine.notifyLater(done(known.ticket), known.ticket)
	}
}

// rejected tells the owner of a decode leg's blocks that the request was refused before it reached the engine
// (#41269: a pre-aborted request is submitted so that prefill may free its blocks).
func (n *nixl) rejected(p *paramsIn) {
	if !p.decodes() || !p.complete() {
		return
	}
	if t, err := p.ticket(); err == nil {
		n.engine.notifyLater(done(t), t)
	}
}
