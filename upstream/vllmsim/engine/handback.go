package engine

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A hand-back is a prefill leg that no turn waits for: prefill reads the KV of a turn from decode into its own prefix cache, and decode's
// blocks become free. vLLM has no such concept; request/params.go recognises it. Measured on 0.32 with a text completion of a ticket's ids,
// which streams and whose client disconnects at the first event: decode's blocks are free after 0.02 to 0.15 s, prefill's after 0.05 to 0.5
// s. Whole blocks of what was read and computed stay in the prefix cache. A request that ends by itself, as with max_tokens 1, keeps
// prefill's blocks for its lease, even if its client has gone.

// handBackPace is the least wall time between two tokens of a hand-back, or of a release that streams. The engine learns in wall time that
// the client has gone. If tokens took no time, the request would end by itself first.
const handBackPace = 20 * time.Millisecond

// Verdict is what the owner of blocks finds wrong with a reader.
type Verdict uint8

// The parts of a Verdict.
const (
	VerdictUneven Verdict = 1 << iota
	VerdictOtherSalt
)

// judge compares a reader with the pin that it reads, if the pin still exists. The caller holds e.Mu.
func (e *Engine) judge(side SideRequest) (v Verdict) {
	p, ok := e.Pins.Held[side.RequestID]
	if !side.Known || !ok {
		return 0
	}
	if !side.Alone && side.Salt != p.Salt { // no other request finds what it reads
		v |= VerdictOtherSalt
	}
	if side.Sizes != nil && !slices.Equal(side.Sizes, []int32{int32(p.Tokens), int32(p.Tokens), int32(len(p.Blocks))}) {
		v |= VerdictUneven
	}
	return v
}

// HandBackPoint is a point at which HoldHandBacks stops a hand-back.
type HandBackPoint string

// The points, in their order.
const (
	// HandBackQueued is before the request has blocks. If its client disconnects, decode is not notified and keeps its pin.
	HandBackQueued HandBackPoint = "queued"
	// HandBackRead is after the KV was copied and before decode is notified; its pin still exists. A client that disconnects changes nothing.
	HandBackRead HandBackPoint = "read"
	// HandBackComputed is after decode was notified and the prompt is in prefill's prefix cache, before the first token or event. If the
	// client disconnects, prefill's blocks become free.
	HandBackComputed HandBackPoint = "computed"
)

// Holds are the points at which hand-backs stop.
type Holds struct {
	mu sync.Mutex // guards what follows
	at map[HandBackPoint][]chan struct{}
}

// Add stops hand-backs at a point until release is called. Further calls of release do nothing.
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

// first returns the channel of the oldest hold on the point, nil if there is none. It closes when that hold ends.
func (h *Holds) first(at HandBackPoint) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.at[at]) == 0 {
		return nil
	}
	return h.at[at][0]
}

// Hold stops a hand-back while the point is held. The error is the cause of ctx.
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
