package vllmsim

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"
)

// A hand-back is a prefill leg that no turn waits for: prefill reads what decode holds of a turn into its own prefix cache, and decode
// is free. vLLM knows no such thing. Measured on 0.32 with a text completion of the ids that a ticket covers, which streams and whose
// client goes at the first event: decode's blocks are free after 0.02 to 0.15 s, prefill's after 0.05 to 0.5 s. What ends by itself, as
// with max_tokens 1, keeps prefill's blocks for its lease, whether its client has gone or not.

// handBackPace is the least wall time between two tokens of a hand-back, or of a release that streams. That its client has gone reaches
// the engine in wall time; an engine whose tokens take none would have ended the request before.
const handBackPace = 20 * time.Millisecond

// handsBack reports whether a request is a hand-back. No engine says so; the rule is that of what no turn sends: a text completion of one
// list of ids, with blocks to be read in a prefill leg (remote_num_tokens above 0), that streams, or has exactly as many ids as
// remote_num_tokens. A turn's prefill leg answers in one piece, and its prompt has more than its ticket.
func (r *apiRequest) handsBack(path string) bool {
	tokens, _ := r.params.integer("remote_num_tokens")
	if path != pathCompletions || tokens <= 0 || !r.params.prefills() || !r.params.truthy("remote_block_ids") {
		return false
	}
	var ids []int32
	if json.Unmarshal(r.Prompt, &ids) != nil || len(ids) == 0 {
		return false
	}
	return r.Stream || len(ids) == tokens
}

// releases reports whether a request is a leg whose client goes at the first event, and which has decode free blocks of which nothing is
// read.
func (r *apiRequest) releases(path string) bool {
	tokens, ok := r.params.integer("remote_num_tokens")
	return path == pathCompletions && r.Stream && ok && tokens == 0 && r.params.prefills() && r.params.truthy("remote_block_ids")
}

// handsBack is that of the body of a request, which need not be valid.
func handsBack(path string, body []byte) bool {
	r, err := parseBody(body)
	return err == nil && r.handsBack(path)
}

// introduce has a request to the owner of blocks say who reads them, so that the simulator may compare; vLLM tells and compares none of
// it. These are flat members, because gob learns every struct anew with each connection, which a busy test has many of.
func (r *run) introduce(side *sideRequest, remote ticket) {
	side.Known, side.Salt = true, r.req.owner()
	if r.req.handsBack {
		side.Sizes = []int32{int32(len(r.req.prompt)), int32(remote.tokens), int32(len(remote.blocks))}
	}
}

// verdict is what the owner of blocks finds wrong with their reader.
type verdict uint8

const (
	verdictUneven verdict = 1 << iota
	verdictOtherSalt
)

// judge compares a reader with the pin that it reads, if that is held. The caller holds e.mu.
func (e *engine) judge(side sideRequest) (v verdict) {
	p, ok := e.pins.held[side.RequestID]
	if !side.Known || !ok {
		return 0
	}
	if side.Salt != p.salt {
		v |= verdictOtherSalt
	}
	if side.Sizes != nil && !slices.Equal(side.Sizes, []int32{int32(p.tokens), int32(p.tokens), int32(len(p.blocks))}) {
		v |= verdictUneven
	}
	return v
}

// heed counts what the owner of the blocks has said.
func (e *engine) heed(v verdict) {
	if v == 0 {
		return
	}
	e.count(func(s *Stats) {
		if v&verdictUneven != 0 {
			s.UnevenHandBacks++
		}
		if v&verdictOtherSalt != 0 {
			s.OtherSalts++
		}
	})
}

// HandBackPoint is a point on the way of a hand-back at which HoldHandBacks stops it.
type HandBackPoint string

// The points, in their order.
const (
	// HandBackQueued is before the request has any blocks. If its client goes, decode is not told and keeps its pin.
	HandBackQueued HandBackPoint = "queued"
	// HandBackRead is when the KV was copied and decode, whose pin lasts, has not been told. The client's going changes nothing here.
	HandBackRead HandBackPoint = "read"
	// HandBackComputed is when decode has been told, and the prompt is in prefill's prefix cache; no token was sampled and no event
	// sent. If its client goes, prefill's blocks are free.
	HandBackComputed HandBackPoint = "computed"
)

// HoldHandBacks stops each hand-back that comes to the point until release is called, which may be called more than once. Stats counts
// those that are stopped in HeldHandBacks. A restart ends them, and Close does.
func (i *Instance) HoldHandBacks(at HandBackPoint) (release func()) { return i.holds.add(at) }

// holds are the points at which hand-backs stop.
type holds struct {
	mu sync.Mutex // guards what follows
	at map[HandBackPoint][]chan struct{}
}

func (h *holds) add(at HandBackPoint) (release func()) {
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

// first is what opens the point, as far as it is closed; nil when it is open.
func (h *holds) first(at HandBackPoint) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.at[at]) == 0 {
		return nil
	}
	return h.at[at][0]
}

// hold stops a hand-back while the point is closed. The error is the cause of ctx.
func (r *run) hold(ctx context.Context, at HandBackPoint) error {
	if !r.req.handsBack || r.req.holds.first(at) == nil {
		return nil
	}
	r.engine.count(func(s *Stats) { s.HeldHandBacks++ })
	defer r.engine.count(func(s *Stats) { s.HeldHandBacks-- })
	for {
		opened := r.req.holds.first(at)
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
