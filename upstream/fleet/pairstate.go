package fleet

import (
	"sync"
	"time"
)

// PairStatus says whether a turn may offer a ticket on a pair.
type PairStatus int

// The statuses that [PairState.Begin] returns.
const (
	// Proven: prefill has answered a ticket of this decode incarnation.
	Proven PairStatus = iota + 1
	// Trial: this turn is the pair's trial; no other may offer it a ticket until
	// the trial is over.
	Trial
	// Busy: another turn is the pair's trial now.
	Busy
	// NoReuse: the pair is stopped, and its next trial is not due yet.
	NoReuse
)

// Outcome is how a ticket on a pair ended.
type Outcome int

// The outcomes of a ticket.
const (
	// Inconclusive: the ticket was never sent, refused as the client's fault, or lost with the connection or the
	// client.
	Inconclusive Outcome = iota
	Answered
	// Unanswered: no answer within the time limit.
	Unanswered
	// Failed: prefill answered 5xx.
	Failed
)

// strikes is how many tickets in a row may go wrong before the pair is stopped. Load can make one ticket late, and a
// block that is gone makes one fail; three in a row show that the pair itself does not work.
const strikes = 3

// A stopped pair gets no ticket for retrialAfter, and for twice as long after each further stop, up to retrialMax: a
// trial that is not answered costs one client the time limit.
const (
	retrialAfter = time.Minute
	retrialMax   = 30 * time.Minute
)

// PairState is what is known of a prefill incarnation together with a decode incarnation: whether prefill answers
// decode's tickets, and whether it may carry releases to decode.
//
// Some engines never answer a ticket: a prefill instance without bidirectional_kv_xfer parks the request for ever
// (vLLM nixl/pull_scheduler.py), and so does kv_load_failure_policy "recompute" on vLLM 0.32 when blocks cannot be
// loaded. The first ticket on a pair is therefore a trial with a time limit, one at a time. Other engines answer each
// ticket with 500.
//
// It is safe for concurrent use. The methods of a nil PairState do nothing, and it allows no reuse.
type PairState struct {
	prefill, decode *Incarnation
	now             func() time.Time
	over            bool // one of the incarnations had ended when it was made; only its caller has it

	mu          sync.Mutex // guards the rest; no other lock is taken under it
	trials      trials
	counted     bool      // it is among the stopped pairs (stops.go)
	dropped     bool      // the incarnations do not share it any more
	exchangedKV bool      // decode has read KV of this prefill incarnation
	paused      time.Time // no release on this pair before
	spares      time.Time // turns' legs on this pair carry no release before

	announcing announcing
}

// trials is what is known of a pair's tickets. The zero value is a pair that was never tried.
type trials struct {
	proven  bool
	trial   bool          // a turn is the pair's trial now
	strikes int           // tickets that went wrong since the last answer
	pause   time.Duration // length of the last stop, 0 if there was none since the last answer
	until   time.Time     // when the last stop ends
}

// PairWith returns what is known of this prefill incarnation and a decode incarnation; nil unless both are known. A
// prefill incarnation has one pair for each decode engine: the pair with a new decode incarnation replaces the one
// before. If either incarnation has ended, the returned state is the caller's alone.
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
	// decode.current is asked under the lock that unpair takes. An engine is marked as forgotten before it is
	// unpaired, so that no pair is left behind.
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

// unpair drops the pairs with engines that are gone.
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

// leave drops a gone engine's pairs, if it is prefill, and its entries in the prefix index.
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

// Begin asks for permission to offer a ticket of decode to prefill. A caller that gets Trial or Proven must call End,
// or the pair stays in its trial.
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

// status needs ps.mu.
func (ps *PairState) status() PairStatus {
	switch {
	case ps.over: // one of the incarnations has ended; a state that is not shared would allow one trial per caller
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

// StatusWith returns what Begin would return for this prefill incarnation with a decode incarnation, and begins
// nothing.
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

// End reports how a ticket ended, once per Begin and as soon as that is known.
//
// The pair is stopped by an unanswered first ticket, by three tickets in a row that are unanswered or failed, and by
// one such ticket in the trial after a stop. pause is the length of a stop that this call began, else 0. An answer
// proves the pair; resumed reports that the pair had been stopped. After an inconclusive trial the next turn tries.
//
// A ticket that was under way when its pair was stopped changes nothing when it ends, unless the next trial has begun
// by then: it ends that trial with its own outcome.
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
