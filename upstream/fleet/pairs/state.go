// Package pairs has what a prefill and a decode incarnation have shown together: whether prefill answers decode's
// tickets, whether decode reads prefill's hand-overs, and whether a leg of the two may release
// tickets (state.go). Package fleet keeps one [State] for each pair, and drops it with either incarnation.
//
// It promises that
//
//   - a pair that has never answered a ticket gets one at a time, and a stopped pair gets none before its next trial is
//     due;
//   - an unused ticket is released only by a pair whose incarnations have exchanged KV;
//   - a nil State, and one of an incarnation that has ended, allow no reuse.
//
// # Trials and strikes
//
// Some engines never answer a ticket (a prefill instance without bidirectional_kv_xfer; kv_load_failure_policy
// "recompute" on vLLM 0.32), and some answer each with a 5xx. So the first ticket on a pair is a trial, one at a time,
// with a time limit. A pair that does not answer its trial is stopped; so is any pair after three tickets in a row that
// were unanswered or answered 5xx. An answer clears the strikes before it; it counts when prefill has answered, not when
// the turn ends. A broken connection is no strike: busy API servers close idle connections under legs. A stopped pair is
// left alone for 1, 2, 4, 8, 16, 30, 30 … minutes, and then one turn is its trial again.
//
// Hand-overs have the same strikes and stops, apart from those of tickets, but no first trial: nearly all pairs can
// exchange KV, and those that can't have a wrong address or another version.
package pairs

import (
	"sync"
	"sync/atomic"
	"time"
)

// State is what is known of a prefill incarnation together with a decode incarnation: whether prefill answers
// decode's tickets, whether decode reads prefill's hand-overs, and whether prefill may carry releases to decode.
//
// Some engines never answer a ticket: a prefill instance without bidirectional_kv_xfer parks the request for ever
// (vLLM nixl/pull_scheduler.py), and so does kv_load_failure_policy "recompute" on vLLM 0.32 when blocks cannot be
// loaded. The first ticket on a pair is therefore a trial with a time limit, one at a time. Other engines answer each
// ticket with 500.
//
// It is safe for concurrent use. The methods of a nil State do nothing, and it allows no reuse.
type State struct {
	now   func() time.Time
	stops []*atomic.Int64 // the counts of stopped pairs that it belongs to

	mu        sync.Mutex // guards the rest; no other lock is taken under it
	tickets   trials
	loads     trials
	counted   bool      // it is among the stopped pairs
	dropped   bool      // one of the incarnations has ended, so that they do not share it any more
	exchanged bool      // decode has read KV of prefill, ever
	paused    time.Time // no release on this pair before
	spares    time.Time // turns' legs on this pair carry no release before
}

// New returns the state of a pair that was never tried. It counts itself in stops while it is stopped.
func New(now func() time.Time, stops ...*atomic.Int64) *State {
	return &State{now: now, stops: stops, loads: trials{proven: true}}
}

// Over returns the state of a pair of which an incarnation has ended: it allows no reuse, because a state that is not
// shared would allow one trial per caller.
func Over(now func() time.Time) *State {
	s := New(now)
	s.dropped = true
	return s
}

// Begin asks for permission to offer a ticket of decode to prefill, for a turn of a client or, with "", for a leg of our
// own. A caller that gets Trial or Proven must call End, or the pair stays in its trial.
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

// End reports how a ticket ended, once per Begin and as soon as that is known.
//
// The pair is stopped by an unanswered first ticket, by three tickets in a row that are unanswered or failed, and by
// one such ticket in the trial after a stop. pause is the length of a stop that this call began, else 0. An answer
// proves the pair; resumed reports that the pair had been stopped. After an inconclusive trial the next turn tries.
//
// A ticket that was under way when its pair was stopped changes nothing when it ends, unless the next trial has begun
// by then: it ends that trial with its own outcome.
//
// client is that of Begin. What one client's tickets show decides nothing for others (trials.status).
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

// count adds the pair to the stopped ones while it is stopped, or removes it. It needs s.mu.
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

// OfOneClient reports whether the pair's stop holds for one client alone.
func (s *State) OfOneClient() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tickets.pause > 0 && !s.tickets.all
}

// Drop removes the pair from the counts, for good: its incarnations do not share it any more.
func (s *State) Drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropped = true
	s.count()
}

// Stopped reports whether Begin would return NoReuse to a client that the stop holds for. A nil State was never tried.
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

// BeginLoad asks for permission to hand KV of prefill to decode. A pair is not on trial before it has failed: it is
// stopped by three hand-overs in a row that decode could not load, and by one in the trial after a stop. A caller that
// gets Trial must call EndLoad, or the pair stays in its trial.
func (s *State) BeginLoad() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loads.begin("", s.now())
}

// EndLoad reports how a hand-over ended: Answered as soon as decode shows that it has the KV. Else it is as End.
func (s *State) EndLoad(outcome Outcome) (pause time.Duration, resumed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.exchanged = s.exchanged || outcome == Answered
	pause, resumed = s.loads.end(outcome, "", s.now())
	s.count()
	return pause, resumed
}

// Loaded reports whether decode has ever read KV of prefill.
func (s *State) Loaded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exchanged
}

// Apart reports whether BeginLoad would refuse a hand-over, and when the stop ends. A nil State was never tried.
func (s *State) Apart() (until time.Time, apart bool) {
	if s == nil {
		return until, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	status := s.loads.status("", s.now())
	return s.loads.until, status == Busy || status == NoReuse
}

// ReleasePause is how long a pair releases nothing after a release failed.
const ReleasePause = 5 * time.Minute

// ExchangedKV records that decode has read KV of prefill: from then on the pair may release.
func (s *State) ExchangedKV() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.exchanged = true
}

// ReleaseFailed stops turns' legs on the pair from carrying releases for five minutes, and with own also legs of our
// own: a turn's leg may have failed for another reason.
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

// Releases reports whether a leg of our own may release on the pair now. It may not while the two have exchanged no KV or
// the pair pauses its releases.
func (s *State) Releases() bool { return s != nil && s.mayRelease(true) }

// CarriesReleases reports the same of a turn's leg.
func (s *State) CarriesReleases() bool { return s != nil && s.mayRelease(false) }

func (s *State) mayRelease(own bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	return s.exchanged && !now.Before(s.paused) && (own || !now.Before(s.spares))
}
