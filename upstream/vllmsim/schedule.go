package vllmsim

import (
	"context"
	"time"
)

// What waits, and what shares the engine, follows Scheduler.schedule of vllm/v1/core/sched/scheduler.py: a request that no
// place is free for (max_num_seqs) or no blocks holds up all behind it; one that reads KV of another instance holds blocks
// and no place, and comes back before the others; a preempted one does so too.

// need describes what a request wants to be let in: how many blocks, and for which prefix of the prompt cached ones would do.
type need struct {
	total  int
	hashes []uint64
	ahead  bool // the request was in already
}

// letIn waits until the engine has a place among the running requests and the blocks of n, and gives both to r. hits is how
// many of the blocks came from the prefix cache. beat is called now and then while waiting.
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
			cached := e.pool.lookup(n.hashes)
			if fresh, ok := e.pool.alloc(n.total - len(cached)); ok {
				r.blocks = append(append(r.blocks, cached...), fresh...)
				r.running = true
				e.running++
				e.events.step()
				return len(cached), nil
			}
			e.pool.release(cached)
		}
		patience := e.cfg.Lease / 6
		if len(e.pins.held) > 0 {
			patience = max(0, min(patience, e.pins.earliest-e.clock.now()))
		}
		e.mu.Unlock()
		// The extra microsecond keeps rounding from waking before the deadline.
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

// stepOut gives the place among the running requests back and keeps the blocks. The caller holds e.mu.
func (r *run) stepOut() {
	if r.running {
		r.running = false
		r.engine.running--
		r.engine.waiting.call()
	}
}

// deferred runs do, during which the request waits for KV from elsewhere; count points at where the statistics count it.
func (r *run) deferred(count func(*Stats) *int, do func()) {
	e := r.engine
	e.mu.Lock()
	r.stepOut()
	*count(&e.stats)++
	e.mu.Unlock()
	do()
	e.count(func(s *Stats) { *count(s)-- })
}

// park never answers: the request stays deferred until its client goes.
func (r *run) park(ctx context.Context) error {
	r.deferred(func(s *Stats) *int { return &s.Parked }, func() { <-ctx.Done() })
	return context.Cause(ctx)
}

// compute passes the time that the engine takes for tokens of a prompt, which all prompts share. A step's token budget goes
// to the running requests in the order in which they were let in, and a prompt takes all that those before it leave; so
// prompts are computed one after the other. That each decode takes a token of the budget, and that prompts which end within
// one step end together, is left out: 256 of 8192 tokens at most, and less than a step.
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
			// Counted from where it should have ended, so that the delay of a timer does not add up along the line. A prompt
			// that was taken back ends now.
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

// timing is what work of the request costs now.
func (r *run) timing() Timing {
	live := r.engine.live.Load()
	factor := live.Slowness * r.req.slowness
	slower := func(d time.Duration) time.Duration { return time.Duration(float64(d) * factor) }
	t := live.Timing
	return Timing{
		PrefillPerToken: slower(t.PrefillPerToken), TransferPerBlock: slower(t.TransferPerBlock),
		InterToken: slower(t.InterToken), Overhead: slower(t.Overhead),
	}
}
