package vllmsim

import (
	"carryover/upstream/vllmsim/config"
	"context"
	"errors"
	"fmt"
	"time"
)

// load reads the KV of count tokens behind the locally cached ones.
//
// As _apply_prefix_caching does, it takes the last n remote blocks, n being the number of local blocks to fill. These are the right
// ones only if the remote list ends where the local one does. If there are fewer remote than local blocks, an assertion fails and the
// engine ends.
func (r *run) load(ctx context.Context, remote ticket, count int) error {
	e, size := r.engine, r.engine.cfg.BlockSize
	first, end := r.local/size, ceilDiv(r.local+count, size)
	if end-first > len(remote.blocks) {
		e.die()
		return errEngineDead
	}
	wanted := remote.blocks[len(remote.blocks)-(end-first):]
	// A client that disconnects does not interrupt the transfer: vLLM keeps the blocks until the transfer is reported.
	var content []uint64
	var err error
	r.deferred(func(s *Stats) *int { return &s.Loading }, func() {
		content, err = r.pull(context.WithoutCancel(ctx), remote, wanted)
	})
	if err != nil {
		e.count(func(s *Stats) { s.LoadFailures++ })
		// ctx ends some time after the engine's ctx.
		for _, ended := range []context.Context{ctx, e.ctx} {
			if cause := context.Cause(ended); cause != nil {
				return cause
			}
		}
		if e.live.Load().LoadFailurePolicy == config.PolicyRecompute {
			return r.park(ctx)
		}
		return errors.Join(errLoadFailed, err)
	}
	r.external, r.nixl().unread = count, false
	e.mu.Lock()
	e.stats.Loads++
	for i, id := range r.blocks[first:end] {
		copy(e.pool.Slots(id), content[i*size:(i+1)*size])
	}
	e.mu.Unlock()
	_, err = r.letIn(ctx, need{ahead: true}, func() {})
	return err
}

// pull copies remote blocks and tells their owner. Only the end of the engine ends it early.
func (r *run) pull(ctx context.Context, remote ticket, blocks []int32) ([]uint64, error) {
	e, perBlock := r.engine, r.timing().TransferPerBlock
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
	if hello.Kind != e.kind() {
		return nil, fmt.Errorf("handshake: compatibility hash of %q there, of %q here", hello.Kind, e.kind())
	}
	if remote.expiry != 0 && remote.expiry-hello.Now < expiryMargin {
		e.count(func(s *Stats) { s.DeclinedReads++ })
		return nil, errDeclined
	}
	side.Op, side.Blocks, side.Registration = opRead, blocks, e.registrationOf(remote, hello.Registration)
	r.introduce(&side, remote)
	data, err := e.peers.call(ctx, addr, side)
	if err != nil {
		return nil, err
	}
	e.heed(data.Verdict)
	if err := e.wait(ctx, time.Duration(len(blocks))*perBlock, func() { e.beat(ctx, remote) }); err != nil {
		return nil, err
	}
	if err := r.hold(ctx, HandBackRead); err != nil {
		return nil, err
	}
	e.notify(ctx, done(remote), remote)
	return data.Content, nil
}

func (e *engine) beat(ctx context.Context, remote ticket) {
	// A lost heartbeat only means that the lease ends earlier.
	_, _ = e.peers.call(ctx, peerAddress(remote.host, remote.port),
		sideRequest{Op: opHeartbeat, EngineID: remote.engineID, RequestID: remote.requestID})
}

// done returns the notification that the blocks of t are not needed any more.
func done(t ticket) sideRequest {
	return sideRequest{Op: opDone, EngineID: t.engineID, RequestID: t.requestID}
}

// notify sends the notification side to the owner of t. It counts a failure and ignores it otherwise.
func (e *engine) notify(ctx context.Context, side sideRequest, t ticket) {
	reply, err := e.peers.call(ctx, peerAddress(t.host, t.port), side)
	if err != nil {
		e.count(func(s *Stats) { s.FailedNotices++ })
	}
	e.heed(reply.Verdict)
}

// notifyLater is notify without waiting: a piggybacked release costs its leg no time even if the owner is gone (measured on
// 0.32).
func (e *engine) notifyLater(side sideRequest, t ticket) {
	e.async.spawn(func() { e.notify(e.ctx, side, t) })
}
