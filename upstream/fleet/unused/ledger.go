package unused

import (
	"sync"
	"time"
)

// Ledger is what a decode incarnation pins for tickets that no turn will use, and for those that are on a leg. It is
// safe for concurrent use. Of an incarnation that is not known nothing is recorded.
type Ledger struct {
	cfg Config

	mu       sync.Mutex   // guards the rest
	unused   []Ticket     // tickets that wait for their release
	soonest  soonest      // the first deadline among the unused tickets
	hurried  bool         // unused tickets are released without waiting for a turn's leg to carry them
	expiring expiringPins // pinned blocks that only decode's TTL frees, and tickets in transfer
}

// Config says of which incarnation a Ledger is.
type Config struct {
	Known bool                 // whether the incarnation's id is known
	Gone  func() bool          // whether the incarnation has ended, or the fleet has forgotten its engine
	TTL   func() time.Duration // after which decode frees blocks by itself, 0 if that is not known
	Now   func() time.Time
	Born  time.Time // when the fleet was made: steps of time count from there
}

// New returns the ledger of a new incarnation, which pins nothing.
func New(cfg Config) *Ledger { return &Ledger{cfg: cfg} }

// End drops the unused tickets: the incarnation has ended.
func (s *Ledger) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.unused {
		s.unused[i].drop(true)
	}
	s.unused = nil
}
