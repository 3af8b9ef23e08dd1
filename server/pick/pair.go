package pick

import (
	"sync/atomic"

	"carryover/upstream/fleet"
)

// Pair is the two engines of one attempt, each in the incarnation with which the attempt began. The incarnations are read once: an engine
// that restarts meanwhile is another incarnation, and what the attempt learns is about the old one. Prefill is nil when decode prefills
// by itself.
type Pair struct {
	Prefill, Decode *fleet.Incarnation
	Quarantined     bool   // a prefill instance is quarantined, so that the attempt avoids it or its prefix cache
	Salt            string // a cache_salt of this attempt alone, so that its legs read nothing from a quarantined prefix cache; "" for none
	Tied            bool   // the path was chosen because of the KV that this decode instance holds
	Uncached        int    // an estimate of the prompt's tokens that are in no cache

	prefillSlot, decodeSlot attemptSlot
	decodeOnly              func() // gives back the slot for decode alone, nil if the attempt has none
	untried                 func() // ends the trial of a pair that was left alone, nil if the attempt is none
}

// Done gives all slots of the attempt back. It is called once.
func (p *Pair) Done() {
	p.decodeSlot.leave()
	p.Prefilled()
	if p.decodeOnly != nil {
		p.decodeOnly()
	}
	if p.untried != nil {
		p.untried()
	}
}

// Prefilled gives the slot of the prefill instance back. It is safe for concurrent use; further calls do nothing.
func (p *Pair) Prefilled() { p.prefillSlot.leave() }

// decodes replaces the decode instance's slot, after the instance has refused the connection, by that of another. The first slot is given
// back at once, because the instance may serve again long before the turn's stream ends.
func (p *Pair) decodes(s Slot) {
	p.decodeSlot.leave()
	p.decodeSlot.take(s)
}

// attemptSlot is the slot of an attempt until it is given back. The zero value holds none.
type attemptSlot struct {
	slot Slot
	has  atomic.Bool
}

// take fills an empty one. Nothing else may be called at the same time.
func (h *attemptSlot) take(s Slot) {
	h.slot = s
	h.has.Store(s.free != nil)
}

// leave gives the slot back, once. It is safe for concurrent use.
func (h *attemptSlot) leave() {
	if h.has.Swap(false) {
		h.slot.leave()
	}
}
