package connector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"carryover/upstream/vllmsim/config"
	"carryover/upstream/vllmsim/engine"
)

// load reads the KV of count tokens behind the locally cached ones.
//
// Like _apply_prefix_caching, it takes the last n remote blocks for n local blocks to fill. These are the right ones only if the remote list
// ends where the local one does. If there are fewer remote than local blocks, an assertion fails and the engine ends.
func (n *nixl) load(ctx context.Context, r *engine.Run, remote ticket, count int) error {
	e, size := r.Engine, r.Engine.Cfg.BlockSize
	first, end := r.Local/size, engine.CeilDiv(r.Local+count, size)
	if end-first > len(remote.blocks) {
		e.Die()
		return engine.ErrEngineDead
	}
	wanted := remote.blocks[len(remote.blocks)-(end-first):]
	// A client that disconnects does not interrupt the transfer: vLLM keeps the blocks until the transfer is reported.
	var content []uint64
	var err error
	r.Deferred(&e.Stats.Loading, func() {
		content, err = n.pull(context.WithoutCancel(ctx), r, remote, wanted)
	})
	if err != nil {
		e.Count(&e.Stats.LoadFailures, 1)
		// ctx ends some time after e.Ctx.
		for _, ended := range []context.Context{ctx, e.Ctx} {
			if cause := context.Cause(ended); cause != nil {
				return cause
			}
		}
		if e.Live.Load().LoadFailurePolicy == config.PolicyRecompute {
			return r.Park(ctx)
		}
		return errors.Join(engine.ErrLoadFailed, err)
	}
	r.External, nixlOf(r).unread = count, false
	e.Mu.Lock()
	e.Stats.Loads++
	for i, id := range r.Blocks[first:end] {
		copy(e.Pool.Slots(id), content[i*size:(i+1)*size])
	}
	e.Mu.Unlock()
	_, err = r.LetIn(ctx, engine.Need{Ahead: true}, func() {})
	return err
}

// pull copies remote blocks and notifies their owner. Only the end of the engine ends it early.
func (n *nixl) pull(ctx context.Context, r *engine.Run, remote ticket, blocks []int32) ([]uint64, error) {
	e, perBlock := r.Engine, r.Timing().TransferPerBlock
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(e.Ctx, func() { cancel(context.Cause(e.Ctx)) })()

	addr := engine.PeerAddress(remote.host, remote.port)
	side := engine.SideRequest{Op: engine.OpHandshake, EngineID: remote.engineID, RequestID: remote.requestID}
	hello, err := e.Peers.Call(ctx, addr, side)
	if errors.Is(err, engine.ErrEngineMismatch) {
		return nil, errors.Join(err, e.Clock.Wait(ctx, engine.MismatchDelay))
	}
	if err != nil {
		return nil, err
	}
	if hello.BlockSize != e.Cfg.BlockSize {
		return nil, fmt.Errorf("handshake: block size %d there, %d here", hello.BlockSize, e.Cfg.BlockSize)
	}
	if hello.Kind != e.Kind() {
		return nil, fmt.Errorf("handshake: compatibility hash of %q there, of %q here", hello.Kind, e.Kind())
	}
	if remote.expiry != 0 && remote.expiry-hello.Now < engine.ExpiryMargin {
		e.Count(&e.Stats.DeclinedReads, 1)
		return nil, engine.ErrDeclined
	}
	side.Op, side.Blocks, side.Registration = engine.OpRead, blocks, n.registrationOf(remote, hello.Registration)
	introduce(r, &side, remote)
	data, err := e.Peers.Call(ctx, addr, side)
	if err != nil {
		return nil, err
	}
	n.heed(data.Verdict)
	if err := e.Wait(ctx, time.Duration(len(blocks))*perBlock, func() { n.prolong(ctx, remote) }); err != nil {
		return nil, err
	}
	if err := r.Hold(ctx, engine.HandBackRead); err != nil {
		return nil, err
	}
	end := done(remote)
	end.Alone = side.Alone
	n.notify(ctx, end, remote)
	return data.Content, nil
}

func (n *nixl) prolong(ctx context.Context, remote ticket) {
	// A lost heartbeat only means that the lease ends earlier.
	_, _ = n.Engine.Peers.Call(ctx, engine.PeerAddress(remote.host, remote.port),
		engine.SideRequest{Op: engine.OpHeartbeat, EngineID: remote.engineID, RequestID: remote.requestID})
}

// done returns the notification that the blocks of t are no longer needed.
func done(t ticket) engine.SideRequest {
	return engine.SideRequest{Op: engine.OpDone, EngineID: t.engineID, RequestID: t.requestID}
}

// notify sends a notification to the owner of t. It counts failures and otherwise ignores them.
func (n *nixl) notify(ctx context.Context, side engine.SideRequest, t ticket) {
	reply, err := n.Engine.Peers.Call(ctx, engine.PeerAddress(t.host, t.port), side)
	if err != nil {
		n.Engine.Count(&n.Engine.Stats.FailedNotices, 1)
	}
	n.heed(reply.Verdict)
}

// notifyLater is notify without a wait: a release with a leg takes no time of the leg, even if the owner is gone (measured on 0.32).
func (n *nixl) notifyLater(side engine.SideRequest, t ticket) {
	n.Engine.Async.Spawn(func() { n.notify(n.Engine.Ctx, side, t) })
}

// introduce adds the reader to a request, so that the simulated owner can compare; vLLM sends and compares none of it. The members are flat,
// because gob learns every struct again with each connection, and a busy test has many.
func introduce(r *engine.Run, side *engine.SideRequest, remote ticket) {
	side.Known, side.Salt, side.Alone = true, r.Req.Owner(), r.Req.Alone()
	if r.Req.HandsBack {
		side.Sizes = []int32{int32(len(r.Req.Prompt)), int32(remote.tokens), int32(len(remote.blocks))}
	}
}

func (n *nixl) heed(v engine.Verdict) {
	e := n.Engine
	if v&engine.VerdictUneven != 0 {
		e.Count(&e.Stats.UnevenHandBacks, 1)
	}
	if v&engine.VerdictOtherSalt != 0 {
		e.Count(&e.Stats.OtherSalts, 1)
	}
}
