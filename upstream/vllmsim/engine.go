package vllmsim

import (
	"carryover/upstream/vllmsim/bpe"
	"carryover/upstream/vllmsim/config"
	"carryover/upstream/vllmsim/kv"
	"carryover/upstream/vllmsim/kvevents"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// engine is one incarnation of one vLLM engine core: its identity, its KV memory, and the blocks that it pins for others.
// Requests run in the goroutine of their HTTP handler.
type engine struct {
	id        string
	rank      int
	sidePort  int
	cfg       config.Config                  // as the engine was started
	live      *atomic.Pointer[config.Config] // with later switches: Bidirectional, Sampling, LoadFailurePolicy, Timing, Slowness
	clock     *clock
	tok       *bpe.Tokenizer
	peers     *peers
	connector connector
	events    *kvevents.Publisher
	started   time.Time // process_start_time_seconds

	// ctx ends when the engine restarts, dies or is closed; its cause says which.
	ctx    context.Context //nolint:containedctx // the engine is what ends, and its requests must see why
	cancel context.CancelCauseFunc
	async  gate // notifications that no request waits for

	mu       sync.Mutex // guards what follows
	pool     *kv.Pool
	pins     pins
	stats    Stats
	waiting  line      // requests that wait to be let in
	running  int       // requests that were let in, without those that read KV of another instance
	prompts  line      // prompts that wait to be computed; the first one is being computed
	computed time.Time // when the last prompt was done
	// registered counts how often the KV memory was registered with the transfer library: once at the beginning, and after each sleep.
	registered int
	peersKnown map[string]peerRegistration // by engine id
}

var (
	errRestarted  = errors.New("engine restarted")
	errEngineDead = errors.New("engine dead")
	errLoadFailed = errors.New("KV load failed")
	errAborted    = errors.New("request aborted")
)

func newEngine(live *atomic.Pointer[config.Config], rank, sidePort int, tok *bpe.Tokenizer, c *clock) *engine {
	cfg := *live.Load()
	e := &engine{
		id:         newEngineID(cfg.EngineID, cfg.DPRanks, rank),
		rank:       rank,
		sidePort:   sidePort,
		cfg:        cfg,
		live:       live,
		clock:      c,
		tok:        tok,
		peers:      newPeers(c),
		started:    time.Now(),
		pool:       kv.NewPool(cfg.Blocks, cfg.BlockSize),
		pins:       newPins(),
		registered: 1,
		peersKnown: map[string]peerRegistration{},
	}
	e.pool.Plain = cfg.NoPrefixCaching
	if e.events = kvevents.New(cfg.KVEvents, rank); e.events != nil {
		e.pool.Evicted = func(hash uint64) { e.events.Happen(kvevents.Event{Kind: kvevents.Removed, Hashes: []uint64{hash}}) }
	}
	e.ctx, e.cancel = context.WithCancelCause(context.Background())
	e.connector = newConnector(e)
	return e
}

// stop ends every request with cause and waits for the engine's own goroutines.
func (e *engine) stop(cause error) {
	e.cancel(cause)
	e.connector.stop()
	e.async.close()
	e.peers.close()
}

// die does what a failed assertion inside an engine step does: every request fails, /health answers 503, nothing recovers.
func (e *engine) die() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dieInStep()
}

// dieInStep is die for a caller that holds e.mu.
func (e *engine) dieInStep() {
	e.stats.Deaths++
	e.stats.Dead = 1
	e.cancel(errEngineDead)
}

func (e *engine) dead() bool { return errors.Is(context.Cause(e.ctx), errEngineDead) }

func (e *engine) count(change func(*Stats)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(&e.stats)
}

// free gives blocks back and wakes the first request that waits for blocks. The caller holds e.mu.
func (e *engine) free(blocks []int32) {
	if len(blocks) == 0 {
		return
	}
	e.pool.Release(blocks)
	e.waiting.call()
}

// snapshot returns the counters and the current state.
func (e *engine) snapshot() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.expire()
	s := e.stats
	s.Pins = len(e.pins.held)
	s.PinnedTokens, s.PinnedBlocks = e.pins.totals()
	s.FreeBlocks = e.pool.Free
	if l, ok := e.connector.(*lmcache); ok {
		s.ChunksHeld = l.found.count()
	}
	if holder, ok := e.connector.(interface{ holds() int }); ok {
		s.KVHeld = holder.holds()
	}
	for _, p := range e.pins.held {
		if p.lease {
			s.LeasedPins++
		}
	}
	return s
}

// wait passes engine time for a request and calls beat, a heartbeat to the owner of its remote blocks, every lease/6.
func (e *engine) wait(ctx context.Context, d time.Duration, beat func()) error {
	for step := e.cfg.Lease / 6; d > step; d -= step {
		if err := e.clock.wait(ctx, step); err != nil {
			return err
		}
		beat()
	}
	return e.clock.wait(ctx, d)
}
