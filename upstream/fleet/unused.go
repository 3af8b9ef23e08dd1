package fleet

import (
	"slices"
	"time"

	"carryover/upstream"
)

// Unused is a ticket that no turn will use, while decode still pins its blocks: it was removed from the store, or
// never stored. It is released once.
type Unused struct {
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
	Reader *Incarnation
	after  time.Time // when Reader knows that its leg was dropped
}

// readerHears is how long after Leave a prefill incarnation certainly knows that a leg was dropped before. Legs with
// tickets end that much earlier than decode frees the blocks by itself (pins.TicketSlack).
const readerHears = 5 * time.Second

// releasableBy reports whether a leg to that prefill incarnation may release the blocks now.
func (u *Unused) releasableBy(prefill *Incarnation, own bool, now time.Time) bool {
	switch {
	case u.Reader == nil:
		return own || !u.Refused
	case !own || upstream.Elapsed(u.after, now) < 0:
		return false
	}
	return u.Reader == prefill || u.Reader.over.Load() // over, not merely removed from the fleet: a removed process may still read
}

// Limits of the unused tickets.
const (
	// maxUnused is per decode incarnation. Beyond it blocks are left to decode's TTL.
	maxUnused = 1024
	// releaseAfter is how long an unused ticket waits for a turn's prefill leg that can carry it, before a leg of our
	// own does. Any pinned block makes an instance keep a core busy (measured on vLLM 0.32).
	releaseAfter = 5 * time.Second
	// releasePause is how long a pair releases nothing after a release failed.
	releasePause = 5 * time.Minute
)

// Leave keeps an unused ticket of this decode incarnation until it can be released. It drops the ticket if the
// incarnation is not known, has ended, lost its engine or has cleared its cache since: nobody can release these
// blocks, or they are free.
func (s *Incarnation) Leave(u Unused) {
	if !s.Known() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if u.Since.IsZero() {
		u.Since = s.engine.fleet.now()
		u.after = u.Since.Add(readerHears)
	} else {
		s.expiring.inTransfer -= u.Tokens // the ticket was taken, and comes back
	}
	switch s.live(); {
	case s.Free(u.FreshAsOf), !s.current():
	case len(s.unused) < maxUnused:
		s.soonest.add(u.Deadline)
		s.unused = append(s.unused, u)
	default:
		s.addExpiringPin(u.Tokens, u.FreshAsOf)
	}
}

// live drops the tickets past their deadline and returns how many are left. Turns call it, so it looks at the tickets
// only when the first deadline may have passed. It needs s.mu.
func (s *Incarnation) live() int {
	now := s.engine.fleet.now()
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
			s.addExpiringPin(u.Tokens, u.FreshAsOf) // decode's TTL ends later than a ticket's deadline
		}
	}
	clear(s.unused[len(kept):])
	if s.unused = kept; len(kept) == 0 {
		s.unused = nil
	}
	return len(kept)
}

// Waiting returns the decode incarnations that have unused tickets and are alive as far as is known. Those of removed
// engines are among them.
func (f *Fleet) Waiting() (all []*Incarnation) {
	for _, e := range f.Holders() {
		if last := e.Last(); last.waits() {
			all = append(all, last)
		}
	}
	return all
}

// pinned returns how many tokens the unused tickets pin, and how many of these may be free already because a leg that
// named them had no answer.
func (s *Incarnation) pinned() (tokens, open int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live()
	for i := range s.unused {
		u := &s.unused[i]
		tokens += u.Tokens
		if u.Reader != nil || u.Tried {
			open += u.Tokens
		}
	}
	return tokens, open
}

func (s *Incarnation) waits() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live() > 0
}

// Due returns the decode incarnations that have more unused tickets than backlog, or one that has waited for
// releaseAfter. It marks their engines, which are left out until Done. The caller must check that an incarnation is
// alive before it releases.
func (f *Fleet) Due(backlog int) (all []*Incarnation) {
	for _, e := range f.Holders() {
		if s := e.due(backlog); s != nil {
			all = append(all, s)
		}
	}
	return all
}

// due returns the engine's incarnation if its tickets are to be released now, else nil, and marks the engine.
func (e *Engine) due(backlog int) *Incarnation {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.releases || e.known == nil {
		return nil
	}
	s := e.known
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.live()
	if n == 0 {
		s.hurried = false
		return nil
	}
	if !s.hurried && n <= backlog && e.fleet.now().Sub(s.unused[0].Since) < releaseAfter {
		return nil
	}
	e.releases = true
	return s
}

// Hurry makes the incarnation due, whatever the backlog, until no ticket waits any more.
func (s *Incarnation) Hurry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hurried = s.live() > 0
}

// Unused returns the number of unused tickets.
func (s *Incarnation) Unused() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live()
}

// Done ends what Due began.
func (s *Incarnation) Done() {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	s.engine.releases = false
}

// ExchangedKV records that decode has read KV of prefill: from then on the pair may release.
func (ps *PairState) ExchangedKV() {
	if ps == nil {
		return
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.exchangedKV = true
}

// ReleaseFailed stops turns' legs on the pair from carrying releases for five minutes, and with own also legs of our
// own: a turn's leg may have failed for another reason.
func (ps *PairState) ReleaseFailed(own bool) {
	if ps == nil {
		return
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.spares = ps.now().Add(releasePause)
	if own {
		ps.paused = ps.spares
	}
}

// TakeUnused returns the oldest unused ticket that this pair may release now, on a leg of our own or on a turn's leg.
// There is none while the two have exchanged no KV or the pair pauses its releases. The ticket counts as in transfer
// until Leave or EndTransfer.
func (ps *PairState) TakeUnused(own bool) (Unused, bool) {
	if ps == nil || !ps.mayRelease(own) {
		return Unused{}, false
	}
	return ps.decode.takeUnused(ps.prefill, own)
}

// Releases reports whether the pair may release now by legs of our own.
func (ps *PairState) Releases() bool { return ps != nil && ps.mayRelease(true) }

func (ps *PairState) mayRelease(own bool) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	now := ps.now()
	return ps.exchangedKV && !now.Before(ps.paused) && (own || !now.Before(ps.spares))
}

func (s *Incarnation) takeUnused(prefill *Incarnation, own bool) (Unused, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live()
	now := s.engine.fleet.now()
	at := -1
	for i := range s.unused {
		if s.unused[i].releasableBy(prefill, own, now) {
			at = i
			break
		}
	}
	if at < 0 {
		return Unused{}, false
	}
	u := s.unused[at]
	if s.unused[at] = (Unused{}); at == 0 {
		s.unused = s.unused[1:] // the usual case, which moves no others
	} else {
		s.unused = slices.Delete(s.unused, at, at+1)
	}
	s.expiring.inTransfer += u.Tokens
	return u, true
}
