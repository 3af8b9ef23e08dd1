package vllmsim

import (
	"context"
	"encoding/json"
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

// handsBack reports whether a request is a hand-back. vLLM marks none, so the rule describes requests that no turn sends: a text completion
// of one list of ids, with blocks to be read in a prefill leg (remote_num_tokens above 0), that streams or has exactly remote_num_tokens
// ids. A turn's prefill leg answers in one piece, and its prompt is longer than its ticket.
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

// releases reports whether a request only makes decode free blocks: nothing of them is read, and its client disconnects at the first
// event.
func (r *apiRequest) releases(path string) bool {
	tokens, ok := r.params.integer("remote_num_tokens")
	return path == pathCompletions && r.Stream && ok && tokens == 0 && r.params.prefills() && r.params.truthy("remote_block_ids")
}

// handsBack applies apiRequest.handsBack to a body, which need not be valid.
func handsBack(path string, body []byte) bool {
	r, err := parseBody(body)
	return err == nil && r.handsBack(path)
}

// introduce adds to a request to the owner of blocks who reads them, so that the simulator can compare; vLLM sends and compares none of
// it. The members are flat, because gob learns every struct anew with each connection, and a busy test has many connections.
func (r *run) introduce(side *sideRequest, remote ticket) {
	side.Known, side.Salt = true, r.req.owner()
	if r.req.handsBack {
		side.Sizes = []int32{int32(len(r.req.prompt)), int32(remote.tokens), int32(len(remote.blocks))}
	}
}

// verdict is what the owner of blocks finds wrong with a reader.
type verdict uint8

const (
	verdictUneven verdict = 1 << iota
	verdictOtherSalt
)

// judge compares a reader with the pin that it reads, if the pin still exists. The caller holds e.mu.
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

// heed counts the verdict of the blocks' owner.
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

// HoldHandBacks stops each hand-back that reaches the point until release is called, which may be called more than once. Stats counts
// the stopped ones in HeldHandBacks. Restart and Close end them.
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

// first returns the channel that opens the point first, nil if the point is open.
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
