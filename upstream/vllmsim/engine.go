package vllmsim

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// engine is one start of one vLLM engine core: its identity, its KV memory, and what it holds for others.
// Requests run in the goroutine of their HTTP handler.
type engine struct {
	id       string
	rank     int
	sidePort int
	cfg      Config                  // as started
	live     *atomic.Pointer[Config] // with what has been switched since: Bidirectional, Sampling, LoadFailurePolicy, Timing, Slowness
	clock    *clock
	tok      *tokenizer
	peers    *peers
	started  time.Time // process_start_time_seconds

	// ctx ends when the engine restarts, dies or is closed; its cause says which.
	ctx    context.Context //nolint:containedctx // the engine is what ends, and its requests must see why
	cancel context.CancelCauseFunc
	async  gate // notifications that are not waited for

	mu       sync.Mutex // guards what follows
	pool     *pool
	pins     pins
	stats    Stats
	waiting  line      // requests that are to be let in
	running  int       // requests that are in, but for those that read KV of another instance
	prompts  line      // prompts to be computed; the first is
	computed time.Time // when the last one was done
}

var (
	errRestarted  = errors.New("engine restarted")
	errEngineDead = errors.New("engine dead")
	errLoadFailed = errors.New("KV load failed")
	errAborted    = errors.New("request aborted")
)

func newEngine(live *atomic.Pointer[Config], rank, sidePort int, tok *tokenizer, c *clock) *engine {
	cfg := *live.Load()
	e := &engine{
		id:       newEngineID(cfg.DPRanks, rank),
		rank:     rank,
		sidePort: sidePort,
		cfg:      cfg,
		live:     live,
		clock:    c,
		tok:      tok,
		peers:    newPeers(c),
		started:  time.Now(),
		pool:     newPool(cfg.Blocks, cfg.BlockSize),
		pins:     newPins(),
	}
	e.ctx, e.cancel = context.WithCancelCause(context.Background())
	return e
}

// stop ends every request with cause and waits for the engine's own goroutines.
func (e *engine) stop(cause error) {
	e.cancel(cause)
	e.async.close()
	e.peers.close()
}

// die is what a failed assertion inside an engine step does: every request fails, /health says 503, nothing recovers.
func (e *engine) die() {
	e.count(func(s *Stats) { s.Deaths++; s.Dead = 1 })
	e.cancel(errEngineDead)
}

func (e *engine) dead() bool { return errors.Is(context.Cause(e.ctx), errEngineDead) }

func (e *engine) count(change func(*Stats)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(&e.stats)
}

// free gives blocks back and calls the request that waits for some. The caller holds e.mu.
func (e *engine) free(blocks []int32) {
	if len(blocks) == 0 {
		return
	}
	e.pool.release(blocks)
	e.waiting.call()
}

// snapshot returns the counters and what is held at this moment.
func (e *engine) snapshot() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.expire()
	s := e.stats
	s.Pins = len(e.pins.held)
	s.PinnedTokens, s.PinnedBlocks = e.pins.totals()
	s.FreeBlocks = e.pool.free
	for _, p := range e.pins.held {
		if p.lease {
			s.LeasedPins++
		}
	}
	return s
}

// notify tells the owner of t that its blocks are not needed any more. A failure is counted and has no other effect.
func (e *engine) notify(ctx context.Context, t ticket) {
	_, err := e.peers.call(ctx, peerAddress(t.host, t.port), sideRequest{Op: opDone, EngineID: t.engineID, RequestID: t.requestID})
	if err != nil {
		e.count(func(s *Stats) { s.FailedNotices++ })
	}
}

// notifyLater is notify for requests that do not wait for it: a release costs the leg with the rider no time even when the owner
// is gone (measured on 0.32).
func (e *engine) notifyLater(t ticket) {
	e.async.spawn(func() { e.notify(e.ctx, t) })
}

// rejected tells the owner of a decode leg's blocks that the request was refused before it reached the engine
// (#41269: a pre-aborted request is submitted so that prefill may free its blocks).
func (e *engine) rejected(p *paramsIn) {
	if !p.decodes() || !p.complete() {
		return
	}
	if t, err := p.ticket(); err == nil {
		e.notifyLater(t)
	}
}

// wait passes engine time for a request and sends a heartbeat to the owner of its remote blocks every lease/6.
func (e *engine) wait(ctx context.Context, d time.Duration, beat func()) error {
	for step := e.cfg.Lease / 6; d > step; d -= step {
		if err := e.clock.wait(ctx, step); err != nil {
			return err
		}
		beat()
	}
	return e.clock.wait(ctx, d)
}
