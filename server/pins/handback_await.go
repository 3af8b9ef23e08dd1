package pins

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

// isUnderWay reports whether a ticket of the conversation is being handed back now.
func (h *handBackQueues) isUnderWay(key convcache.Key) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.under[key] != nil
}

// await is HandBacks.Await.
func (h *handBackQueues) await(ctx context.Context, key convcache.Key) {
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
func (h *handBackQueues) setsOut(k *retainedTicket) {
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
