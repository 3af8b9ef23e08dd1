package server

import (
	"context"
	"time"

	"carryover/convcache"
)

// underWay counts the hand-backs of one conversation that run now.
type underWay struct {
	legs  int
	ended chan struct{} // closed with the last of them
}

// underWay reports whether a ticket of the conversation is being handed back now.
func (h *handBacks) underWay(key convcache.Key) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.under[key] != nil
}

// await waits for the hand-backs of a conversation that run now, mostly a tenth of a second and at most patienceForLeg. Afterwards prefill
// need not compute what was handed back. And if prefill cached it under other ids than it was sent, it is quarantined before the turn could
// read that.
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

// setsOut counts a hand-back that begins. The caller holds h.mu.
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
