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
func (h *handBackQueues) await(ctx context.Context, keys []convcache.Key, waited time.Duration) time.Duration {
	var legs []*underWay
	h.mu.Lock()
	for _, key := range keys {
		if under := h.under[key]; under != nil {
			legs = append(legs, under)
		}
	}
	h.mu.Unlock()
	if len(legs) == 0 || waited >= patienceForLeg {
		return waited
	}
	began, limit := time.Now(), time.NewTimer(patienceForLeg-waited)
	defer limit.Stop()
	for _, under := range legs {
		select {
		case <-under.ended:
		case <-limit.C:
			return patienceForLeg
		case <-ctx.Done():
		}
	}
	return waited + time.Since(began)
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
