package server

import (
	"context"
	"time"

	"carryover/convcache"
)

// underWay is what of one conversation is on its way to prefill now.
type underWay struct {
	legs  int
	ended chan struct{} // closed with the last of them
}

// underWay reports whether a ticket of the conversation is on its way to prefill now.
func (h *handBacks) underWay(key convcache.Key) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.under[key] != nil
}

// await has a turn wait for what of its conversation is on its way, for a while: mostly a tenth of a second, after which prefill need not
// compute it. Nor does the turn read then what prefill has filed under other ids than it was sent, and is about to be barred for.
func (h *handBacks) await(ctx context.Context, key convcache.Key) {
	h.mu.Lock()
	under := h.under[key]
	h.mu.Unlock()
	if under == nil {
		return
	}
	limit := time.NewTimer(patienceForLeg)
	defer limit.Stop()
	select {
	case <-under.ended:
	case <-limit.C:
	case <-ctx.Done():
	}
}

// setsOut notes that a hand-back begins. It needs h.mu.
func (h *handBacks) setsOut(k *retainedTicket) {
	if !k.homed {
		return
	}
	under := h.under[k.key]
	if under == nil {
		under = &underWay{ended: make(chan struct{})}
		h.under[k.key] = under
	}
	under.legs++
}
