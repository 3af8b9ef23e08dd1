package engine

import (
	"context"
	"time"

	"carryover/upstream/vllmsim/config"
)

// Waiting and sharing follow Scheduler.schedule of vllm/v1/core/sched/scheduler.py. A request without a free place (max_num_seqs) or block
// holds up all requests behind it. A request that reads KV of another instance holds blocks but no place, and comes back before the others;
// so does a preempted one.

// Need is what a request needs to run: the number of blocks, and the prompt hashes whose cached blocks it can share.
type Need struct {
	total  int
	hashes []uint64
	Ahead  bool // the request had a place before
}

// LetIn waits for a free place and for the blocks of n, and gives both to r. hits is the number of blocks from the prefix cache. It calls
// beat regularly while it waits.
func (r *Run) LetIn(ctx context.Context, n Need, beat func()) (hits int, err error) {
	e := r.Engine
	e.Mu.Lock()
	defer e.Mu.Unlock()
	w := e.waiting.join(n.Ahead || r.Req.Sibling)
	e.Stats.Waiting++
	defer func() {
		e.Stats.Waiting--
		e.waiting.leave(w)
	}()
	for {
		e.Expire()
		if e.waiting.isFirst(w) && (e.running < e.Cfg.MaxNumSeqs || r.Req.Sibling) {
			cached := e.Pool.Lookup(n.hashes)
			if fresh, ok := e.Pool.Alloc(n.total - len(cached)); ok {
				r.Blocks = append(append(r.Blocks, cached...), fresh...)
				r.running = true
				e.running++
				e.Events.Step()
				return len(cached), nil
			}
			e.Pool.Release(cached)
		}
		patience := e.Cfg.Lease / 6
		if len(e.Pins.Held) > 0 {
			patience = max(0, min(patience, e.Pins.earliest-e.Clock.Now()))
		}
		e.Mu.Unlock()
		// The extra microsecond keeps rounding from ending the wait before the deadline.
		late, err := w.wait(ctx, e.Clock.Real(patience)+time.Microsecond)
		if late && err == nil {
			beat()
		}
		e.Mu.Lock()
		if err != nil {
			return 0, err
		}
	}
}

// stepOut gives up the place and keeps the blocks. The caller holds e.Mu.
func (r *Run) stepOut() {
	if r.running {
		r.running = false
		r.Engine.running--
		r.Engine.waiting.call()
	}
}

// Deferred runs do while the request waits for KV from elsewhere. counter counts such requests.
func (r *Run) Deferred(counter *int, do func()) {
	e := r.Engine
	e.Mu.Lock()
	r.stepOut()
	*counter++
	e.Mu.Unlock()
	do()
	e.Count(counter, -1)
}

// Park never answers: the request waits until its client disconnects.
func (r *Run) Park(ctx context.Context) error {
	r.Deferred(&r.Engine.Stats.Parked, func() { <-ctx.Done() })
	return context.Cause(ctx)
}

// compute waits while the engine computes tokens of a prompt. A step's token budget goes to the running requests in the order in which LetIn
// admitted them. A prompt takes all that is left, so prompts are computed one after the other. The model omits two effects: each decode takes
// a token of the budget (256 of 8192 at most), and prompts that end within one step end together (less than a step).
func (r *Run) compute(ctx context.Context, tokens int, beat func()) error {
	e := r.Engine
	cost := e.Clock.Real(time.Duration(tokens) * r.Timing().PrefillPerToken)
	if cost == 0 {
		return context.Cause(ctx)
	}
	e.Mu.Lock()
	w := e.prompts.join(false)
	e.Mu.Unlock()
	ends := time.Time{}
	defer func() {
		e.Mu.Lock()
		defer e.Mu.Unlock()
		if e.prompts.isFirst(w) {
			// The time counts from where the prompt should have ended, so that timer delays do not add up along the line. A cancelled prompt
			// ends now.
			if now := time.Now(); ends.After(now) {
				e.computed = now
			} else if !ends.IsZero() {
				e.computed = ends
			}
		}
		e.prompts.leave(w)
	}()
	for {
		e.Mu.Lock()
		first, begins := e.prompts.isFirst(w), w.arrived
		if e.computed.After(begins) {
			begins = e.computed
		}
		e.Mu.Unlock()
		if first {
			ends = begins.Add(cost)
			return e.Wait(ctx, e.Clock.Scaled(time.Until(ends)), beat)
		}
		late, err := w.wait(ctx, e.Clock.Real(e.Cfg.Lease/6))
		if err != nil {
			return err
		}
		if late {
			beat()
		}
	}
}

// Timing returns the current durations of work for the request.
func (r *Run) Timing() config.Timing {
	live := r.Engine.Live.Load()
	factor := live.Slowness * r.Req.Slowness
	slower := func(d time.Duration) time.Duration { return time.Duration(float64(d) * factor) }
	t := live.Timing
	return config.Timing{
		PrefillPerToken: slower(t.PrefillPerToken), TransferPerBlock: slower(t.TransferPerBlock),
		InterToken: slower(t.InterToken), Overhead: slower(t.Overhead),
	}
}
