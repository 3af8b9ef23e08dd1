package pins

import (
	"hash/maphash"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"carryover/upstream"
)

// states knows the state of each answer's blocks, by the name that decode gives them, and lets it change as the table says. An answer leaves
// one ticket, which is stored, on a leg, or waits for its release. A second ticket for the same blocks would be used or released after the
// first, when decode has given the blocks to another request. This can only happen if an answer is stored twice, or if an engine gives two
// requests one name. Whichever of the two comes second finds the blocks in a state that it can't follow, and is dropped.
//
// It remembers for as long as a ticket may live, or the last maxStates answers, in two generations. The older generation is forgotten as a
// whole. Names are kept as 64-bit hashes; a collision costs a ticket.
type states struct {
	seed maphash.Seed
	life time.Duration // of a generation
	now  func() time.Time

	strict bool // a fault panics; for tests
	logger *slog.Logger
	faults atomic.Uint64

	mu    sync.Mutex // guards what follows
	young map[uint64]State
	old   map[uint64]State
	since time.Time // when young began
}

// maxStates bounds a generation: 3 MB.
const maxStates = 1 << 16

// newStates remembers blocks for as long as a ticket lives, and for the margin in which a leg may still read them.
func newStates(ttl time.Duration, logger *slog.Logger) *states {
	return &states{seed: maphash.MakeSeed(), life: ttl + marginWithoutExpiry, now: time.Now, logger: logger, young: map[uint64]State{}}
}

// name returns the name of an answer's blocks.
func (s *states) name(decode string, parsed *upstream.TicketParams) uint64 {
	var h maphash.Hash
	h.SetSeed(s.seed)
	for _, part := range []string{decode, parsed.EngineID, parsed.RequestID} {
		_, _ = h.WriteString(part) // never fails
		_ = h.WriteByte(0)         // in none of them
	}
	return h.Sum64()
}

// try changes the state of blocks, and reports false, without a change, if the table does not have that. It is for changes that others
// decide: an engine that names blocks, a store that returns a ticket.
func (s *states) try(name uint64, next State) bool {
	_, changed := s.change(name, func(now State) bool { return now.mayBecome(next) }, next)
	return changed
}

// unstore changes the state of blocks if they are stored: a taker may have been faster.
func (s *states) unstore(name uint64, next State) {
	s.change(name, func(now State) bool { return now == Stored }, next)
}

// move changes the state of blocks. A change that the table does not have is a defect of this package: the state stays, and the fault is
// counted and logged.
func (s *states) move(name uint64, next State) {
	now, changed := s.change(name, func(now State) bool { return now.mayBecome(next) }, next)
	if changed {
		return
	}
	if s.strict {
		panic("pins: " + now.String() + " becomes " + next.String())
	}
	s.faults.Add(1)
	s.logger.Error("a ticket's blocks change in a way that the table of transitions does not have", "from", now.String(), "to", next.String())
}

func (s *states) change(name uint64, may func(now State) bool, next State) (now State, changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, young := s.young[name]
	if !young {
		now = s.old[name]
	}
	if !may(now) {
		return now, false
	}
	if !young && (len(s.young) >= maxStates || s.now().Sub(s.since) >= s.life) {
		s.old, s.young, s.since = s.young, map[uint64]State{}, s.now()
	}
	s.young[name] = next
	return now, true
}
