package fleet

import (
	"sync"
	"time"
)

// PairStatus is how a link stands to a ticket that a turn wants to offer on it.
type PairStatus int

// The standings that [PairState.Begin] returns.
const (
	// Proven: prefill has answered a ticket of this decode start.
	Proven PairStatus = iota + 1
	// Trial: this turn is the link's trial; no other may offer it a ticket until
	// the trial is over.
	Trial
	// Busy: another turn is the link's trial right now.
	Busy
	// NoReuse: the link has been stopped, and is not to be tried again yet.
	NoReuse
)

// Outcome is how a ticket on a link ended.
type Outcome int

// The fates of a ticket.
const (
	// Inconclusive: never sent, refused as the client's fault, connection broken,
	// client gone.
	Inconclusive Outcome = iota
	Answered
	// Unanswered: no answer within the time limit.
	Unanswered
	// Failed: prefill answered 5xx.
	Failed
)

// strikes is how many tickets in a row may go wrong: load can make one late and a
// block that is gone makes one fail, three mean that it is the link.
const strikes = 3

// A link that was stopped is left alone for retrialAfter, and for twice as long
// each time that it is stopped again, up to retrialMax: a trial that is not
// answered costs one client the time limit.
const (
	retrialAfter = time.Minute
	retrialMax   = 30 * time.Minute
)

// PairState is what is known of a prefill start and a decode start together: whether prefill
// answers decode's tickets, and whether it may bring releases to decode.
//
// Some engines never answer a ticket: a prefill instance without bidirectional_kv_xfer
// parks the request for ever (vLLM nixl/pull_scheduler.py), and so does
// kv_load_failure_policy "recompute" on vLLM 0.32 when blocks cannot be loaded. The first
// ticket on a link is therefore a trial with a time limit, one at a time. Others answer
// 500, each time.
//
// It is safe for concurrent use. The methods of a nil Link do nothing, and it reuses
// nothing.
type PairState struct {
	prefill, decode *Incarnation
	now             func() time.Time
	over            bool // made when one of the starts had ended, and shared by none

	mu          sync.Mutex // guards the rest; no other lock is taken under it
	trials      trials
	counted     bool      // among the stopped ones (stops.go)
	dropped     bool      // it is shared no more
	exchangedKV bool      // decode has read KV of prefill
	paused      time.Time // until then it releases nothing
	spares      time.Time // until then legs of turns carry nothing to be released

	announcing announcing
}

// trials is what is known of a link's tickets. The zero value is a link that has not been
// tried.
type trials struct {
	proven  bool
	trial   bool          // a turn is the link's trial
	strikes int           // tickets that went wrong since the last answer
	pause   time.Duration // how long the last stop lasts, 0 if there was none since the last answer
	until   time.Time     // when it ends
}

// PairWith returns what is known of this prefill start and a start of decode; nil unless both
// are known. A prefill start has one link for each decode engine: a new start of decode
// takes the place of the one before. A link of a start that is over is kept by its caller
// alone.
func (s *Incarnation) PairWith(decode *Incarnation) *PairState {
	if !s.Known() || !decode.Known() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ps := s.pairs[decode.engine]; ps != nil && ps.decode == decode {
		return ps
	}
	ps := &PairState{prefill: s, decode: decode, now: s.engine.fleet.now, over: true}
	// Whether decode is still there is looked at under the lock that unlink needs. An engine is marked as
	// forgotten before it is unlinked, so that no link is left behind.
	if decode.current() && s.current() {
		if s.pairs == nil {
			s.pairs = map[*Engine]*PairState{}
		}
		if old := s.pairs[decode.engine]; old != nil {
			old.drop()
		}
		s.pairs[decode.engine], ps.over = ps, false
	}
	return ps
}

// unpair drops the links with engines that are gone.
func (e *Engine) unpair(gone []*Engine) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.known == nil {
		return
	}
	e.known.mu.Lock()
	defer e.known.mu.Unlock()
	for _, decode := range gone {
		if ps := e.known.pairs[decode]; ps != nil {
			ps.drop()
			delete(e.known.pairs, decode)
		}
	}
}

// leave drops what others know of an engine that is gone: its links, if it is of prefill, and which prompts it has computed.
func (e *Engine) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.known == nil {
		return
	}
	e.known.mu.Lock()
	defer e.known.mu.Unlock()
	for _, ps := range e.known.pairs {
		ps.drop()
	}
	e.known.pairs = nil
	e.fleet.prefixes.drop(e.known)
}

// Begin asks to offer a ticket of decode to prefill. A caller that gets Trial or Proven
// must call End, or the link stays on trial.
func (ps *PairState) Begin() PairStatus {
	if ps == nil {
		return NoReuse
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	status := ps.status()
	ps.trials.trial = ps.trials.trial || status == Trial
	return status
}

// status needs l.mu.
func (ps *PairState) status() PairStatus {
	switch {
	case ps.over: // one of the starts has ended; the trial of a link that is not shared would be one of many
		return Busy
	case ps.trials.proven:
		return Proven
	case ps.trials.trial:
		return Busy
	case ps.now().Before(ps.trials.until):
		return NoReuse
	}
	return Trial
}

// StatusWith returns what Begin would return on the link of this prefill start with a start of decode, and begins nothing.
func (s *Incarnation) StatusWith(decode *Incarnation) PairStatus {
	if !s.Known() || !decode.Known() {
		return NoReuse
	}
	s.mu.Lock()
	ps := s.pairs[decode.engine]
	s.mu.Unlock()
	if ps == nil || ps.decode != decode {
		return Trial
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.status()
}

// End reports a ticket's fate, once per Begin and as soon as it is known.
//
// One that is unanswered on a link that has never answered stops the link, and so
// do three in a row that are unanswered or failed, and one in the trial after a
// stop. pause is how long the link is left alone, if it was stopped by this call.
// An answer proves the link; resumed reports that it was a stopped one. An
// inconclusive trial lets the next turn try.
//
// The fate of a ticket that was under way when its link was stopped changes
// nothing, unless it comes so late that the next trial has begun; then it ends the
// trial like the trial's own.
func (ps *PairState) End(outcome Outcome) (pause time.Duration, resumed bool) {
	if ps == nil {
		return 0, false
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	r := &ps.trials
	if !r.proven && !r.trial {
		return 0, false
	}
	r.trial = false
	switch outcome {
	case Inconclusive:
		return 0, false
	case Answered:
		resumed = r.pause > 0
		*r = trials{proven: true}
		ps.count(false)
		return 0, resumed
	}
	r.strikes++
	if r.strikes < strikes && r.pause == 0 && (r.proven || outcome == Failed) {
		return 0, false
	}
	pause = min(max(retrialAfter, 2*r.pause), retrialMax)
	*r = trials{pause: pause, until: ps.now().Add(pause)}
	ps.count(true)
	return pause, false
}
