package pick

import (
	"sync"
	"sync/atomic"

	"carryover/server/queue"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// Pair is the two engines of one attempt. Each incarnation is read once: an engine that restarts meanwhile is another incarnation, and what the
// attempt learns is about the old one. Prefill is nil if decode prefills by itself.
type Pair struct {
	Prefill, Decode *fleet.Incarnation
	Quarantined     bool   // a prefill instance is quarantined, so the attempt avoids it or its prefix cache
	Salt            string // a cache_salt for this attempt alone, so its legs read nothing from a quarantined prefix cache; "" for none
	Tied            bool   // the path depends on the KV that this decode instance holds
	Alone           string // why decode serves alone, "" if it does not
	Uncached        int    // an estimate of the prompt's tokens that are in no cache

	prefillSlot, decodeSlot slot
	ends                    []func() // give back the slot for decode alone, and end the pair's trial
}

// Done gives back all slots of the attempt. It is called once.
func (p *Pair) Done() {
	p.decodeSlot.leave()
	p.Prefilled()
	for _, end := range p.ends {
		end()
	}
}

// Prefilled gives back the slot of the prefill instance. It is safe for concurrent use; further calls do nothing.
func (p *Pair) Prefilled() { p.prefillSlot.leave() }

// slot is an attempt's slot on an instance, until leave. The zero value has none.
type slot struct {
	waiting *queue.Queue // counts the claim, nil for none
	claim   queue.Claim
	free    func() // gives the slot back to the instance, which tells the queue (fleet.OnFreed)
	has     atomic.Bool
}

// take fills an empty slot. Nothing else may be called at the same time.
func (s *slot) take(waiting *queue.Queue, claim queue.Claim, free func()) {
	s.waiting, s.claim, s.free = waiting, claim, free
	s.has.Store(true)
}

// leave gives the slot back, once. It is safe for concurrent use.
func (s *slot) leave() {
	if !s.has.Swap(false) {
		return
	}
	if s.waiting != nil {
		s.waiting.Leave(s.claim)
	}
	s.free()
}

// longestModel is longer than any model name that an engine may list (maxModelID of package facts).
const longestModel = 1 << 10

// slotClass returns a turn's class in the queue. Turns of one class can be given the same instances.
func slotClass(role upstream.Role, model, prefiller string, excluded []*fleet.Engine) string {
	// The name is cut because no engine serves a longer one, and because no client's memory counts the copy.
	class := role.String() + " " + model[:min(len(model), longestModel)] + " " + prefiller
	for _, e := range excluded {
		class += " -" + e.Name
	}
	return class
}

// Limits of turns that decode serves alone because no prefill instance can. A decode instance that also prefills serves its open streams more slowly.
const (
	maxDecodeOnly = 16
	// spareDecodeOnly more slots are for tenants that have none, so one tenant's turns, which may last for minutes, do not shut the others out.
	spareDecodeOnly = 4
)

type decodeOnlySlots struct {
	mu      sync.Mutex // guards the rest
	taken   int
	tenants map[string]int // slots of each tenant with any
}

// take gives the tenant's turn a slot. leave gives it back, and is called once; it is nil if no slot is free.
func (d *decodeOnlySlots) take(tenant string) (leave func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.taken >= maxDecodeOnly && (d.taken >= maxDecodeOnly+spareDecodeOnly || d.tenants[tenant] > 0) {
		return nil
	}
	if d.tenants == nil {
		d.tenants = map[string]int{}
	}
	d.taken++
	d.tenants[tenant]++
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.taken--
		if d.tenants[tenant]--; d.tenants[tenant] == 0 {
			delete(d.tenants, tenant)
		}
	}
}
