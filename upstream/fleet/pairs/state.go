// Package pairs has what a prefill and a decode incarnation have shown together: whether prefill answers decode's
// tickets, whether decode reads prefill's hand-overs, and whether the two may release tickets. Package fleet keeps one
// [State] per pair, and drops it with either incarnation. It promises:
//
//   - A pair that has never answered a ticket gets one at a time. A stopped pair gets none before its next trial is due.
//   - Only a pair that has exchanged KV releases unused tickets.
//   - A nil State, and one of an incarnation that has ended, allow no reuse.
//
// # Trials and strikes
//
// Some prefill engines never answer a ticket, but park the request for ever: without bidirectional_kv_xfer (vLLM
// nixl/pull_scheduler.py), or with kv_load_failure_policy "recompute" on vLLM 0.32 if blocks can't be loaded. Others
// answer each ticket with a 5xx. So the first ticket of a pair is a trial with a time limit, one at a time. A pair that
// does not answer its trial is stopped, and so is any pair after three tickets in a row that were unanswered or
// answered 5xx. An answer clears the strikes as soon as prefill has answered, not at the end of the turn. A broken
// connection is no strike: busy API servers close idle connections under legs. A stop lasts 1, 2, 4, 8, 16, 30, 30 …
// minutes; then one turn is a new trial.
//
// Hand-overs have strikes and stops of their own, but no first trial: nearly all pairs can exchange KV, and the others
// have a wrong address or another version.
package pairs

import (
	"sync"
	"sync/atomic"
	"time"
)

// State is what a prefill and a decode incarnation have shown together. It is safe for concurrent use. A nil State does
// nothing and allows no reuse.
type State struct {
	now   func() time.Time
	stops []*atomic.Int64 // counts of stopped pairs that include this one

	mu        sync.Mutex // guards the rest; no other lock is taken under it
	tickets   trials
	loads     trials
	counted   bool      // in stops
	dropped   bool      // one incarnation has ended; they no longer share the state
	exchanged bool      // decode has read KV of prefill at least once
	paused    time.Time // no release before
	spares    time.Time // turns' legs carry no release before
}

// New returns the state of an untried pair. It counts itself in stops while it is stopped.
func New(now func() time.Time, stops ...*atomic.Int64) *State {
	return &State{now: now, stops: stops, loads: trials{proven: true}}
}

// Over returns the state of a pair whose incarnation has ended. It allows no reuse, because an unshared state would
// allow one trial per caller.
func Over(now func() time.Time) *State {
	s := New(now)
	s.dropped = true
	return s
}

// Begin asks for permission to offer decode's ticket to prefill, for a client's turn or, with "", for a leg of our own.
// After Trial or Proven the caller must call End, or the pair stays in its trial.
func (s *State) Begin(client string) Status {
	if s == nil {
		return NoReuse
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dropped {
		return Busy
	}
	return s.tickets.begin(client, s.now())
}

// Status returns what Begin would return to a leg of our own, and begins nothing.
func (s *State) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dropped {
		return Busy
	}
	return s.tickets.status("", s.now())
}

// End reports how a ticket ended, once per Begin, as soon as that is known.
//
// The pair is stopped by an unanswered first ticket, by three tickets in a row that are unanswered or failed, or by one
// in the trial after a stop. pause is the length of a stop that began now, else 0. An answer proves the pair; resumed
// says that the pair was stopped before. After an inconclusive trial the next turn tries.
//
// A ticket that was under way when its pair was stopped changes nothing, unless the next trial has begun: then its
// outcome ends that trial.
//
// client is the client of Begin. One client's tickets decide nothing for others (trials.status).
func (s *State) End(outcome Outcome, client string) (pause time.Duration, resumed bool) {
	if s == nil {
		return 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	pause, resumed = s.tickets.end(outcome, client, s.now())
	s.count()
	return pause, resumed
}

// count needs s.mu.
func (s *State) count() {
	stopped := !s.dropped && s.tickets.pause+s.loads.pause > 0
	if stopped == s.counted {
		return
	}
	s.counted = stopped
	change := int64(1)
	if !stopped {
		change = -1
	}
	for _, count := range s.stops {
		count.Add(change)
	}
}

// OfOneClient reports whether the pair's stop holds for one client only.
func (s *State) OfOneClient() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tickets.pause > 0 && !s.tickets.all
}

// Drop removes the pair from the counts for good, because an incarnation has ended.
func (s *State) Drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropped = true
	s.count()
}

// Stopped reports whether Begin would return NoReuse to a client of the stop. A nil State was never tried.
func (s *State) Stopped() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.tickets.proven && !s.tickets.trial && s.now().Before(s.tickets.until)
}

// Retry ends the pair's stops and the pause of its releases.
func (s *State) Retry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused, s.tickets.until, s.loads.until = time.Time{}, time.Time{}, time.Time{}
}

// BeginLoad asks for permission to hand KV to decode. Three hand-overs in a row that decode could not load stop a pair;
// after a stop, one does. After Trial the caller must call EndLoad, or the pair stays in its trial.
func (s *State) BeginLoad() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loads.begin("", s.now())
}

// EndLoad reports how a hand-over ended, like End: Answered as soon as decode shows that it has the KV.
func (s *State) EndLoad(outcome Outcome) (pause time.Duration, resumed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.exchanged = s.exchanged || outcome == Answered
	pause, resumed = s.loads.end(outcome, "", s.now())
	s.count()
	return pause, resumed
}

// Loaded reports whether decode has ever read KV of prefill, as far as is known: a nil State has no memory.
func (s *State) Loaded() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exchanged
}

// Apart reports whether BeginLoad would refuse, and when the stop ends. A nil State was never tried.
func (s *State) Apart() (until time.Time, apart bool) {
	if s == nil {
		return until, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	status := s.loads.status("", s.now())
	return s.loads.until, status == Busy || status == NoReuse
}

// ReleasePause is how long a pair releases nothing after a failed release.
const ReleasePause = 5 * time.Minute

// ExchangedKV records that decode has read KV of prefill, so the pair may release.
func (s *State) ExchangedKV() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.exchanged = true
}

// ReleaseFailed stops releases by turns' legs for ReleasePause, and with own by our own legs, too: a turn's leg may
// have failed for another reason.
func (s *State) ReleaseFailed(own bool) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spares = s.now().Add(ReleasePause)
	if own {
		s.paused = s.spares
	}
}

// Releases reports whether a leg of our own may release now: the two have exchanged KV, and releases are not paused.
func (s *State) Releases() bool { return s != nil && s.mayRelease(true) }

// CarriesReleases is Releases for a turn's leg.
func (s *State) CarriesReleases() bool { return s != nil && s.mayRelease(false) }

func (s *State) mayRelease(own bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	return s.exchanged && !now.Before(s.paused) && (own || !now.Before(s.spares))
}
