package unused

import (
	"slices"
	"time"

	"carryover/upstream"
)

// Reader is a prefill incarnation that was sent a ticket.
type Reader interface {
	// Ended reports whether the process has ended.
	Ended() bool
}

// Owner owns the blocks of an unused ticket.
type Owner interface {
	// Dropped is called, with the ledger's lock held, when the ticket is dropped without a release: its blocks are gone,
	// or decode's TTL will free them.
	Dropped(gone bool)
}

// Ticket is a ticket that no turn will use, while decode still pins its blocks: it was removed from the store, or
// never stored. It is released once.
type Ticket struct {
	Owner     Owner // is told if the ticket is dropped; it may be nil
	Params    []byte
	Reading   any // upstream.TicketParams.Reading of Params, nil if that is not known
	Model     string
	Since     time.Time // when it became unused; Leave sets it if it is zero
	Deadline  time.Time // when decode frees the blocks by itself
	Tokens    int       // how many tokens its blocks hold, 0 if that is not known
	FreshAsOf time.Time // the last moment at which decode certainly held the blocks
	Refused   bool      // a client's request that carried it was refused or failed: only a leg of our own may carry it
	Tried     bool      // a release has failed: one more may be tried, and no third

	// Reader is the prefill incarnation that was sent the ticket and has not answered, nil if there is none. Its leg
	// may still read the blocks, and a release lets decode put other KV into them. vLLM handles requests in order, so
	// the abort of that leg comes before the release, and it keeps nothing of a request that was aborted before its KV
	// arrived (v1/core/sched/scheduler.py, _update_from_kv_xfer_finished, 0.32). So the blocks are released on a leg
	// of our own through that incarnation, or through any other once its process has ended; in both cases not before
	// it knows that the leg was dropped.
	Reader Reader
	after  time.Time // when Reader knows that its leg was dropped
}

// ReaderHears is how long after Leave a prefill incarnation certainly knows that a leg was dropped before. Legs with
// tickets end that much earlier than decode frees the blocks by itself (pins.TicketSlack).
const ReaderHears = 5 * time.Second

// releasableBy reports whether a leg to that prefill incarnation may release the blocks now.
func (u *Ticket) releasableBy(prefill Reader, own bool, now time.Time) bool {
	switch {
	case u.Reader == nil:
		return own || !u.Refused
	case !own || upstream.Elapsed(u.after, now) < 0:
		return false
	}
	return u.Reader == prefill || u.Reader.Ended() // ended, not merely removed from the fleet: a removed process may still read
}

// Limits of the unused tickets.
const (
	// Max is per decode incarnation. Beyond it blocks are left to decode's TTL.
	Max = 1024
	// ReleaseAfter is how long an unused ticket waits for a turn's prefill leg that can carry it, before a leg of our
	// own does. Any pinned block makes an instance keep a core busy (measured on vLLM 0.32).
	ReleaseAfter = 5 * time.Second
)

// Leave keeps an unused ticket of this decode incarnation until it can be released. It drops the ticket if the
// incarnation is not known, has ended or lost its engine: nobody can release these
// blocks, or they are free.
func (s *Ledger) Leave(u Ticket) {
	if !s.cfg.Known {
		u.drop(true)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if u.Since.IsZero() {
		u.Since = s.cfg.Now()
		u.after = u.Since.Add(ReaderHears)
	} else {
		s.expiring.inTransfer -= u.Tokens // the ticket was taken, and comes back
	}
	switch s.live(); {
	case s.cfg.Gone():
		u.drop(true)
	case len(s.unused) < Max:
		s.soonest.add(u.Deadline)
		s.unused = append(s.unused, u)
	default:
		s.addExpiring(u.Tokens, u.FreshAsOf)
		u.drop(false)
	}
}

// drop tells the owner of a ticket that is dropped.
func (u *Ticket) drop(gone bool) {
	if u.Owner != nil {
		u.Owner.Dropped(gone)
	}
}

// live drops the tickets past their deadline and returns how many are left. Turns call it, so it looks at the tickets
// only when the first deadline may have passed. It needs s.mu.
func (s *Ledger) live() int {
	now := s.cfg.Now()
	if !s.soonest.come(now) {
		return len(s.unused)
	}
	s.soonest = soonest{}
	kept := s.unused[:0]
	for _, u := range s.unused {
		if upstream.Elapsed(u.Deadline, now) < 0 {
			s.soonest.add(u.Deadline)
			kept = append(kept, u)
		} else {
			s.addExpiring(u.Tokens, u.FreshAsOf) // decode's TTL ends later than a ticket's deadline
			u.drop(false)
		}
	}
	clear(s.unused[len(kept):])
	if s.unused = kept; len(kept) == 0 {
		s.unused = nil
	}
	return len(kept)
}

// Waits reports whether any ticket waits for its release.
func (s *Ledger) Waits() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live() > 0
}

// Due reports whether the tickets are to be released now by legs of our own: there are more than backlog, one has
// waited for ReleaseAfter, or Hurry was called.
func (s *Ledger) Due(backlog int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.live()
	if n == 0 {
		s.hurried = false
		return false
	}
	return s.hurried || n > backlog || s.cfg.Now().Sub(s.unused[0].Since) >= ReleaseAfter
}

// Hurry makes the incarnation due, whatever the backlog, until no ticket waits any more.
func (s *Ledger) Hurry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hurried = s.live() > 0
}

// Unused returns the number of unused tickets.
func (s *Ledger) Unused() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live()
}

// Take returns the oldest unused ticket that a leg to the prefill incarnation may release now: a leg of our own, or a
// turn's. The ticket counts as in transfer until Leave or EndTransfer.
func (s *Ledger) Take(prefill Reader, own bool) (Ticket, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live()
	now := s.cfg.Now()
	at := -1
	for i := range s.unused {
		if s.unused[i].releasableBy(prefill, own, now) {
			at = i
			break
		}
	}
	if at < 0 {
		return Ticket{}, false
	}
	u := s.unused[at]
	if s.unused[at] = (Ticket{}); at == 0 {
		s.unused = s.unused[1:] // the usual case, which moves no others
	} else {
		s.unused = slices.Delete(s.unused, at, at+1)
	}
	s.expiring.inTransfer += u.Tokens
	return u, true
}
