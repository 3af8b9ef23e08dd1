package pick

import "sync"

// Limits of the turns that decode serves alone because no prefill instance can serve them. A decode instance that also prefills serves its
// open streams more slowly.
const (
	maxDecodeOnly = 16
	// spareDecodeOnly more slots are for tenants that have none, so that one tenant's turns, which may last for minutes, do not shut the
	// others out.
	spareDecodeOnly = 4
)

// decodeOnlySlots are the slots of turns that decode serves alone.
type decodeOnlySlots struct {
	mu      sync.Mutex // guards the rest
	taken   int
	tenants map[string]int // slots of each tenant that has any
}

// take gives a turn of the tenant a slot, if one is free. leave gives it back, and is called once.
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
