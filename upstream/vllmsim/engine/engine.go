// Package engine simulates the core of a vLLM engine. It schedules requests, computes and caches their KV, pins blocks for other engines, and
// answers these over a side channel. It knows no HTTP, and connectors only by their interface.
package engine

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"carryover/upstream/vllmsim/bpe"
	"carryover/upstream/vllmsim/config"
	"carryover/upstream/vllmsim/kv"
	"carryover/upstream/vllmsim/kvevents"
)

// Engine is one incarnation of a vLLM engine core: its identity, its KV memory, and the blocks that it pins for others. Requests run in the
// goroutines of their HTTP handlers.
type Engine struct {
	ID        string
	Rank      int
	SidePort  int
	Started   time.Time                      // process_start_time_seconds
	Cfg       config.Config                  // as the engine was started
	Live      *atomic.Pointer[config.Config] // with later switches: Bidirectional, Sampling, LoadFailurePolicy, Timing, Slowness
	Clock     *Clock
	Events    *kvevents.Publisher
	Peers     *Peers
	Connector Connector
	tok       *bpe.Tokenizer

	// Ctx ends when the engine restarts, dies or is closed; its cause says which.
	Ctx    context.Context //nolint:containedctx // the engine is what ends, and its requests must see why
	cancel context.CancelCauseFunc
	Async  Gate // notifications that no request waits for

	Mu      sync.Mutex // guards what follows
	Pool    *kv.Pool
	Pins    pins
	Stats   Stats
	waiting line // requests that wait for a place or for blocks
	// registered counts how often the transfer library registered the KV memory: at the start, and after each sleep.
	registered int
	running    int       // requests with a place; those that read KV of another instance have none
	prompts    line      // prompts that wait to be computed; the first one is being computed
	computed   time.Time // when the last prompt was done
}

// Why a request ends without an answer.
var (
	ErrRestarted  = errors.New("engine restarted")
	ErrEngineDead = errors.New("engine dead")
	ErrLoadFailed = errors.New("KV load failed")
	ErrAborted    = errors.New("request aborted")
)

// New starts an incarnation. connect makes its connector.
func New(live *atomic.Pointer[config.Config], rank, sidePort int, tok *bpe.Tokenizer, c *Clock, connect func(*Engine) Connector) *Engine {
	cfg := *live.Load()
	e := &Engine{
		ID: newEngineID(cfg.EngineID, cfg.DPRanks, rank), Rank: rank, SidePort: sidePort, Started: time.Now(),
		Cfg: cfg, Live: live, Clock: c, Events: kvevents.New(cfg.KVEvents, rank), Peers: NewPeers(c), tok: tok,
		Pool: kv.NewPool(cfg.Blocks, cfg.BlockSize), Pins: pins{Held: make(map[string]*Pin), spent: make(map[string]outcome)}, registered: 1,
	}
	e.Pool.Plain = cfg.NoPrefixCaching
	if e.Events != nil {
		e.Pool.Evicted = func(hash uint64) { e.Events.Happen(kvevents.Event{Kind: kvevents.Removed, Hashes: []uint64{hash}}) }
	}
	e.Ctx, e.cancel = context.WithCancelCause(context.Background())
	e.Connector = connect(e)
	return e
}

// Stop ends every request with cause and waits for the engine's own goroutines.
func (e *Engine) Stop(cause error) {
	e.cancel(cause)
	e.Connector.Stop()
	e.Async.Close()
	e.Peers.Close()
}

// Die simulates a failed assertion inside an engine step: every request fails, /health answers 503, nothing recovers.
func (e *Engine) Die() {
	e.Mu.Lock()
	defer e.Mu.Unlock()
	e.DieInStep()
}

// DieInStep is Die for a caller that holds e.Mu.
func (e *Engine) DieInStep() {
	e.Stats.Deaths++
	e.Stats.Dead = 1
	e.cancel(ErrEngineDead)
}

// Dead reports whether a failed step has ended the engine.
func (e *Engine) Dead() bool { return errors.Is(context.Cause(e.Ctx), ErrEngineDead) }

// Snapshot returns the counts and the current state.
func (e *Engine) Snapshot() Stats {
	e.Mu.Lock()
	defer e.Mu.Unlock()
	e.Expire()
	s := e.Stats
	s.Pins = len(e.Pins.Held)
	s.PinnedTokens, s.PinnedBlocks = e.Pins.totals()
	s.FreeBlocks = e.Pool.Free
	e.Connector.Gauges(&s)
	for _, p := range e.Pins.Held {
		if p.Lease {
			s.LeasedPins++
		}
	}
	return s
}

// Wait passes engine time for a request. Every lease/6 it calls beat, a heartbeat to the owner of the request's remote blocks.
func (e *Engine) Wait(ctx context.Context, d time.Duration, beat func()) error {
	for step := e.Cfg.Lease / 6; d > step; d -= step {
		if err := e.Clock.Wait(ctx, step); err != nil {
			return err
		}
		beat()
	}
	return e.Clock.Wait(ctx, d)
}

func newEngineID(configured string, ranks, rank int) string {
	id := cmp.Or(configured, uuid.NewString())
	if ranks > 1 {
		id += "_dp" + strconv.Itoa(rank)
	}
	return id
}
