package unused

import "time"

// expiringPins counts the pinned tokens of a decode incarnation that nothing will free before decode's TTL: those of
// tickets that nobody used in time, and of answers that left no ticket where releases are off or failed. The tokens
// are counted by the time at which decode held them, in ExpirySteps steps per TTL, so that memory does not grow with
// the number of pins.
type expiringPins struct {
	tokens     map[int64]int // by step of the fleet's clock
	width      time.Duration // length of a step
	inTransfer int           // tokens of tickets, used or not, that are on a leg now
}

// ExpirySteps is how many steps a TTL has: pins are counted for at most a hundredth of a TTL too long.
const ExpirySteps = 100

// AddExpiring counts tokens whose blocks decode certainly held at that time and that nothing will release.
func (s *Ledger) AddExpiring(tokens int, held time.Time) {
	if !s.cfg.Known {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addExpiring(tokens, held)
}

// addExpiring needs s.mu.
func (s *Ledger) addExpiring(tokens int, held time.Time) {
	ttl := s.cfg.TTL()
	if ttl <= 0 || tokens <= 0 || s.cfg.Gone() {
		return
	}
	s.dropExpired()
	at := s.step(held)
	if at < s.step(s.cfg.Now().Add(-ttl)) {
		return // decode has freed them by now
	}
	if s.expiring.tokens == nil {
		s.expiring.tokens = map[int64]int{}
	}
	s.expiring.tokens[at] += tokens
}

// step returns the number of the step that a time belongs to. It needs s.mu.
func (s *Ledger) step(t time.Time) int64 {
	return int64(t.Sub(s.cfg.Born) / s.expiring.width)
}

// fit adapts the length of the steps to the TTL that is configured now. Tokens move to the step of their old step's
// end.
func (l *expiringPins) fit(ttl time.Duration) {
	width := max(1, ttl/ExpirySteps)
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

// dropExpired drops the steps whose blocks decode has freed by now. It needs s.mu.
func (s *Ledger) dropExpired() {
	ttl := s.cfg.TTL()
	s.expiring.fit(ttl)
	oldest := s.step(s.cfg.Now().Add(-ttl))
	for at := range s.expiring.tokens {
		if at < oldest {
			delete(s.expiring.tokens, at)
		}
	}
}

// BeginTransfer counts a ticket's tokens as being on a leg. EndTransfer must follow, once.
func (s *Ledger) BeginTransfer(tokens int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expiring.inTransfer += tokens
}

// EndTransfer ends what BeginTransfer or Take began: the leg made decode free the blocks, or they are counted elsewhere.
func (s *Ledger) EndTransfer(tokens int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expiring.inTransfer -= tokens
}

// Pinned is how many tokens a ledger counts as pinned: by the tickets that wait for their release, and besides these by
// tickets on a leg and by blocks that only decode's TTL frees.
type Pinned struct {
	Waiting, Besides int
	Open             int // of Waiting, what may be free already: a leg that named it had no answer
}

// Pinned returns what the incarnation pins, tickets in the store left out.
func (s *Ledger) Pinned() (p Pinned) {
	if !s.cfg.Known {
		return p
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live()
	for i := range s.unused {
		u := &s.unused[i]
		p.Waiting += u.Tokens
		if u.Reader != nil || u.Tried {
			p.Open += u.Tokens
		}
	}
	s.dropExpired()
	p.Besides = s.expiring.inTransfer
	for _, n := range s.expiring.tokens {
		p.Besides += n
	}
	return p
}
