package vllmsim

import (
	"carryover/upstream/vllmsim/config"
	"context"
	"time"
)

// The rules for waiting and sharing the engine follow Scheduler.schedule of vllm/v1/core/sched/scheduler.py. A request for which no
// place (max_num_seqs) or no block is free holds up all requests behind it. A request that reads KV of another instance holds
// blocks but no place, and comes back before the others; so does a preempted one.

// need is what a request needs to be let in: the number of blocks, and the prompt hashes for which cached blocks will do.
type need struct {
	total  int
	hashes []uint64
	ahead  bool // the request was let in before
}

// letIn waits until the engine has a free place among the running requests and the blocks of n, and gives both to r. hits is the number
// of blocks from the prefix cache. It calls beat now and then while it waits.
func (r *run) letIn(ctx context.Context, n need, beat func()) (hits int, err error) {
	e := r.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	w := e.waiting.join(n.ahead || r.req.sibling)
	e.stats.Waiting++
	defer func() {
		e.stats.Waiting--
		e.waiting.leave(w)
	}()
	for {
		e.expire()
		if e.waiting.isFirst(w) && (e.running < e.cfg.MaxNumSeqs || r.req.sibling) {
			cached := e.pool.Lookup(n.hashes)
			if fresh, ok := e.pool.Alloc(n.total - len(cached)); ok {
				r.blocks = append(append(r.blocks, cached...), fresh...)
				r.running = true
				e.running++
				e.events.Step()
				return len(cached), nil
			}
			e.pool.Release(cached)
		}
		patience := e.cfg.Lease / 6
		if len(e.pins.held) > 0 {
			patience = max(0, min(patience, e.pins.earliest-e.clock.now()))
		}
		e.mu.Unlock()
		// The extra microsecond keeps rounding from ending the wait before the deadline.
		late, err := w.wait(ctx, e.clock.real(patience)+time.Microsecond)
		if late && err == nil {
			beat()
		}
		e.mu.Lock()
		if err != nil {
			return 0, err
		}
	}
}

// stepOut gives up the place among the running requests and keeps the blocks. The caller holds e.mu.
func (r *run) stepOut() {
	if r.running {
		r.running = false
		r.engine.running--
		r.engine.waiting.call()
	}
}

// deferred runs do while the request waits for KV from elsewhere; count points to the counter of such requests.
func (r *run) deferred(count func(*Stats) *int, do func()) {
	e := r.engine
	e.mu.Lock()
	r.stepOut()
	*count(&e.stats)++
	e.mu.Unlock()
	do()
	e.count(func(s *Stats) { *count(s)-- })
}

// park never answers: the request stays deferred until its client disconnects.
func (r *run) park(ctx context.Context) error {
	r.deferred(func(s *Stats) *int { return &s.Parked }, func() { <-ctx.Done() })
	return context.Cause(ctx)
}

// compute waits for the time that the engine takes for tokens of a prompt; all prompts share the engine. A step's token budget goes to
// the running requests in the order in which they were let in, and a prompt takes all that is left, so prompts are computed one after
// the other. The model omits two effects: each decode takes a token of the budget (256 of 8192 at most), and prompts that end within
// one step end together (less than a step).
func (r *run) compute(ctx context.Context, tokens int, beat func()) error {
	e := r.engine
	cost := e.clock.real(time.Duration(tokens) * r.timing().PrefillPerToken)
	if cost == 0 {
		return context.Cause(ctx)
	}
	e.mu.Lock()
	w := e.prompts.join(false)
	e.mu.Unlock()
	ends := time.Time{}
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.prompts.isFirst(w) {
			// Counted from where it should have ended, so that the delays of timers do not add up along the line. A cancelled prompt ends
			// now.
			if now := time.Now(); ends.After(now) {
				e.computed = now
			} else if !ends.IsZero() {
				e.computed = ends
			}
		}
		e.prompts.leave(w)
	}()
	for {
		e.mu.Lock()
		first, begins := e.prompts.isFirst(w), w.arrived
		if e.computed.After(begins) {
			begins = e.computed
		}
		e.mu.Unlock()
		if first {
			ends = begins.Add(cost)
			return e.wait(ctx, e.clock.scaled(time.Until(ends)), beat)
		}
		late, err := w.wait(ctx, e.clock.real(e.cfg.Lease/6))
		if err != nil {
			return err
		}
		if late {
			beat()
		}
	}
}

// timing returns the current durations of work for the request.
func (r *run) timing() config.Timing {
	live := r.engine.live.Load()
	factor := live.Slowness * r.req.slowness
	slower := func(d time.Duration) time.Duration { return time.Duration(float64(d) * factor) }
	t := live.Timing
	return config.Timing{
		PrefillPerToken: slower(t.PrefillPerToken), TransferPerBlock: slower(t.TransferPerBlock),
		InterToken: slower(t.InterToken), Overhead: slower(t.Overhead),
	}
}
