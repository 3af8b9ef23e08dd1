package server

import (
	"maps"
	"sync"
)

// Bounds of the turns that decode prefills by itself because no prefill instance can: a decode instance that does all the work serves its
// open streams more slowly.
const (
	maxDecodeOnly = 16
	// spareDecodeOnly are for tenants that have none of these: turns of one tenant may last for minutes, and deny no other tenant all of them.
	spareDecodeOnly = 4
)

// decodeOnlySlots are the slots of these turns.
type decodeOnlySlots struct {
	mu      sync.Mutex // guards the rest
	taken   int
	tenants map[string]int // only of those that have one
}

// take gives a turn of the tenant a slot, if there is one; leave gives it back, and is called once.
func (s *decodeOnlySlots) take(tenant string) (leave func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken >= maxDecodeOnly && (s.taken >= maxDecodeOnly+spareDecodeOnly || s.tenants[tenant] > 0) {
		return nil, false
	}
	if s.tenants == nil {
		s.tenants = map[string]int{}
	}
	s.taken++
	s.tenants[tenant]++
	return func() { s.leave(tenant) }, true
}

func (s *decodeOnlySlots) leave(tenant string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	if s.tenants[tenant]--; s.tenants[tenant] == 0 {
		delete(s.tenants, tenant)
	}
}

// copied are slots of their own, of which as many are taken.
func (s *decodeOnlySlots) copied() *decodeOnlySlots {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &decodeOnlySlots{taken: s.taken, tenants: maps.Clone(s.tenants)}
}
