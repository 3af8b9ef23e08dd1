package fleet

import "time"

// expiringPins are the blocks of a decode start that nothing is expected to free before decode's TTL ends: of tickets that nobody used in
// time, and of answers that left no ticket where nothing is released, or where the release failed. How many tokens that are is known
// by when decode had them, in as many steps of its TTL as are counted apart, so that the memory does not depend on how many they are.
type expiringPins struct {
	tokens     map[int64]int // by step of the fleet's clock
	width      time.Duration // of a step
	inTransfer int           // tokens of tickets, used or not, that are on a leg now
}

// expirySteps is how many steps a TTL has: what is counted stays for a hundredth of it longer than the blocks.
const expirySteps = 100

// AddExpiringPin counts tokens whose blocks decode had at that time, as far as is certain, and that nothing releases.
func (s *Incarnation) AddExpiringPin(tokens int, held time.Time) {
	if !s.Known() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addExpiringPin(tokens, held)
}

// addExpiringPin needs s.mu, so that a cache which is cleared meanwhile is either seen here or followed by dropUnused.
func (s *Incarnation) addExpiringPin(tokens int, held time.Time) {
	ttl := s.engine.Instance().KVTTL
	if ttl <= 0 || tokens <= 0 || !s.current() || s.Free(held) {
		return
	}
	s.dropExpired()
	at := s.step(held)
	if at < s.step(s.engine.fleet.now().Add(-ttl)) {
		return // decode has freed them
	}
	if s.expiring.tokens == nil {
		s.expiring.tokens = map[int64]int{}
	}
	s.expiring.tokens[at] += tokens
}

// step is the number of a time's step. It needs s.mu.
func (s *Incarnation) step(t time.Time) int64 {
	return int64(t.Sub(s.engine.fleet.born) / s.expiring.width)
}

// fit makes the steps those of the TTL that is configured now. What was counted counts as of the end of its step of before.
func (l *expiringPins) fit(ttl time.Duration) {
	width := max(1, ttl/expirySteps)
	if width == l.width {
		return
	}
	before, was := l.tokens, l.width
	l.tokens, l.width = nil, width
	for at, tokens := range before {
		if l.tokens == nil {
			l.tokens = map[int64]int{}
		}
		l.tokens[((at+1)*int64(was)-1)/int64(width)] += tokens
	}
}

// dropExpired forgets what decode has freed by now. It needs s.mu.
func (s *Incarnation) dropExpired() {
	ttl := s.engine.Instance().KVTTL
	s.expiring.fit(ttl)
	oldest := s.step(s.engine.fleet.now().Add(-ttl))
	for at := range s.expiring.tokens {
		if at < oldest {
			delete(s.expiring.tokens, at)
		}
	}
}

// BeginTransfer counts a ticket of so many tokens among those on their way. Arrives ends that, once for each.
func (s *Incarnation) BeginTransfer(tokens int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expiring.inTransfer += tokens
}

// EndTransfer ends what Departs or TakeUnused began. freed says that the leg had decode free the blocks, or that what comes of them is
// counted elsewhere from now on; else they last.
func (s *Incarnation) EndTransfer(tokens int, held time.Time, freed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expiring.inTransfer -= tokens
	if !freed {
		s.addExpiringPin(tokens, held)
	}
}

// otherPins returns how many tokens are pinned besides those of tickets that wait, in the store or for their release.
func (s *Incarnation) otherPins() int {
	if !s.Known() {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropExpired()
	tokens := s.expiring.inTransfer
	for _, n := range s.expiring.tokens {
		tokens += n
	}
	return tokens
}
