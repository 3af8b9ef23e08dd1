package fleet

import (
	"slices"
	"time"

	"carryover/upstream"
)

// Unused is a ticket that will not be used any more, while decode still holds its
// blocks: it was removed from the store, or never got there. It is released once.
type Unused struct {
	Params    []byte
	Reading   any // upstream.Kept.Reading of them, nil if that is not known
	Model     string
	Since     time.Time // when it was left; Leave sets it if it is zero
	Deadline  time.Time // decode has freed the blocks by itself from then on
	Tokens    int       // that its blocks hold, 0 if that is not known
	FreshAsOf time.Time // when decode had them, as far as is certain
	Refused   bool      // a client's request that carried it was refused, or failed: only a leg of our own may
	Tried     bool      // a leg that was to release it has failed: one more may, and no third

	// Reader is the start of prefill that was sent the ticket and has not answered, nil if there is none. Its leg may read the blocks
	// yet, and a release has decode keep other KV in them. vLLM handles what it is sent in order, the abort of that leg before the
	// release, and files nothing of a request that was aborted before its KV had come (v1/core/sched/scheduler.py,
	// _update_from_kv_xfer_finished, 0.32). So that start alone releases the blocks, by a leg of our own, or any start once its
	// process is over; and not before it has heard that the leg was dropped.
	Reader *Incarnation
	after  time.Time // when it has
}

// readerHears is how long after Leave a start of prefill has heard of a leg that was dropped before. Legs with tickets end as much
// earlier than decode frees the blocks by itself (server.TicketSlack).
const readerHears = 5 * time.Second

// releasableBy reports whether a leg to that start of prefill may name the blocks now.
func (u *Unused) releasableBy(prefill *Incarnation, own bool, now time.Time) bool {
	switch {
	case u.Reader == nil:
		return own || !u.Refused
	case !own || upstream.Elapsed(u.after, now) < 0:
		return false
	}
	return u.Reader == prefill || u.Reader.over.Load() // of one that is only not in the fleet any more the process may still read
}

// Bounds of what waits for its release.
const (
	// maxUnused is per start of decode. What does not fit is left to decode's TTL.
	maxUnused = 1024
	// releaseAfter is how long an unused ticket waits for a prefill leg that can
	// carry it before a leg of our own does: an instance that holds pinned blocks
	// keeps a core busy (measured on vLLM 0.32), however few they are.
	releaseAfter = 5 * time.Second
	// releasePause is how long a link releases nothing after a release went wrong.
	releasePause = 5 * time.Minute
)

// Leave keeps an unused ticket of this decode start until it can be released: nothing of a
// start that is not known, and nothing of one that is over or whose engine is gone, whose
// blocks are out of reach, or that has cleared its cache since.
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
		s.expiring.inTransfer -= u.Tokens // it was taken, and comes back
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

// live drops what is past its deadline and returns how many are left. It needs s.mu. Turns call it, so that it looks at the tickets
// only when the first of them may be past it.
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
			s.addExpiringPin(u.Tokens, u.FreshAsOf) // a ticket ends earlier than decode's TTL
		}
	}
	clear(s.unused[len(kept):])
	if s.unused = kept; len(kept) == 0 {
		s.unused = nil
	}
	return len(kept)
}

// Waiting returns the decode starts with unused tickets, as far as is known which starts
// are alive; those of engines that were removed are among them.
func (f *Fleet) Waiting() (all []*Incarnation) {
	for _, e := range f.Holders() {
		if last := e.Last(); last.waits() {
			all = append(all, last)
		}
	}
	return all
}

// pinned returns how many tokens the unused tickets hold that wait for their release, and of these, how many may be free already.
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

// Due returns the decode starts with more unused tickets than the backlog, or with one
// that has waited for too long. Their engines are left out until Done is called. It is
// not known of each start that it is alive: the caller asks before it releases.
func (f *Fleet) Due(backlog int) (all []*Incarnation) {
	for _, e := range f.Holders() {
		if s := e.due(backlog); s != nil {
			all = append(all, s)
		}
	}
	return all
}

// due returns the start of which tickets are to be released, nil if there is none, and
// marks the engine.
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

// Hurry makes the start due until nothing waits any more, whatever the backlog.
func (s *Incarnation) Hurry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hurried = s.live() > 0
}

// Unused returns how many unused tickets wait.
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

// ExchangedKV records that decode has read KV of prefill, so that the two know each other.
func (ps *PairState) ExchangedKV() {
	if ps == nil {
		return
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.exchangedKV = true
}

// ReleaseFailed stops the link from releasing for five minutes: by legs of turns, whose failure may have had another cause, and where a
// leg of our own has failed altogether.
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

// TakeUnused hands out the oldest unused ticket of the decode start for this prefill start
// to bring, on a leg of our own or on a turn's; none if the two have not met, or if the
// link is paused. It is on its way then, until Leave or Arrives.
func (ps *PairState) TakeUnused(own bool) (Unused, bool) {
	if ps == nil || !ps.mayRelease(own) {
		return Unused{}, false
	}
	return ps.decode.takeUnused(ps.prefill, own)
}

// Releases reports whether the link may bring unused tickets now, by legs of our own.
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
		s.unused = s.unused[1:] // mostly, without moving the others
	} else {
		s.unused = slices.Delete(s.unused, at, at+1)
	}
	s.expiring.inTransfer += u.Tokens
	return u, true
}
