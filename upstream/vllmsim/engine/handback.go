package engine

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A hand-back is a prefill leg that no turn waits for: prefill reads the KV that decode holds of a turn into its own prefix cache, and
// decode's blocks become free. vLLM has no such concept. Measured on 0.32 with a text completion of the ids that a ticket covers, which
// streams and whose client disconnects at the first event: decode's blocks are free after 0.02 to 0.15 s, prefill's after 0.05 to 0.5 s. A
// request that ends by itself, as with max_tokens 1, keeps prefill's blocks for its lease, even if its client has gone.

// handBackPace is the least wall time between two tokens of a hand-back, or of a release that streams. The engine learns in wall time
// that the client has gone; an engine whose tokens take no time would have ended the request by itself before.
const handBackPace = 20 * time.Millisecond

// Verdict is what the owner of blocks finds wrong with a reader.
type Verdict uint8

// The parts of a Verdict.
const (
	VerdictUneven Verdict = 1 << iota
	VerdictOtherSalt
)

// judge compares a reader with the pin that it reads, if the pin still exists. The caller holds e.mu.
func (e *Engine) judge(side SideRequest) (v Verdict) {
	p, ok := e.Pins.Held[side.RequestID]
	if !side.Known || !ok {
		return 0
	}
	if !side.Alone && side.Salt != p.Salt { // nobody finds what one alone reads
		v |= VerdictOtherSalt
	}
	if side.Sizes != nil && !slices.Equal(side.Sizes, []int32{int32(p.Tokens), int32(p.Tokens), int32(len(p.Blocks))}) {
		v |= VerdictUneven
	}
	return v
}

// HandBackPoint is a point in the course of a hand-back at which HoldHandBacks stops it.
type HandBackPoint string

// The points, in their order.
const (
	// HandBackQueued is before the request has blocks. If its client disconnects, decode is not told and keeps its pin.
	HandBackQueued HandBackPoint = "queued"
	// HandBackRead is after the KV was copied and before decode, whose pin lasts, is told. It makes no difference if the client disconnects.
	HandBackRead HandBackPoint = "read"
	// HandBackComputed is after decode was told and the prompt is in prefill's prefix cache, before a token is sampled or an event
	// sent. If the client disconnects, prefill's blocks become free.
	HandBackComputed HandBackPoint = "computed"
)

// Holds are the points at which hand-backs stop.
type Holds struct {
	mu sync.Mutex // guards what follows
	at map[HandBackPoint][]chan struct{}
}

// Add closes a point until release is called, which may be called more than once.
func (h *Holds) Add(at HandBackPoint) (release func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.at == nil {
		h.at = map[HandBackPoint][]chan struct{}{}
	}
	opened := make(chan struct{})
	h.at[at] = append(h.at[at], opened)
	return sync.OnceFunc(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.at[at] = slices.DeleteFunc(h.at[at], func(c chan struct{}) bool { return c == opened })
		close(opened)
	})
}

// first returns the channel that opens the point first, nil if the point is open.
func (h *Holds) first(at HandBackPoint) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.at[at]) == 0 {
		return nil
	}
	return h.at[at][0]
}

// Hold stops a hand-back while the point is closed. The error is the cause of ctx.
func (r *Run) Hold(ctx context.Context, at HandBackPoint) error {
	if !r.Req.HandsBack || r.Req.Holds.first(at) == nil {
		return nil
	}
	r.Engine.Count(&r.Engine.Stats.HeldHandBacks, 1)
	defer r.Engine.Count(&r.Engine.Stats.HeldHandBacks, -1)
	for {
		opened := r.Req.Holds.first(at)
		if opened == nil {
			return nil
		}
		select {
		case <-opened:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
