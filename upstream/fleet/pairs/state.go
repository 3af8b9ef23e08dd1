package pairs

import (
	"sync"
	"sync/atomic"
	"time"
)

// Status says whether a turn may offer a ticket on a pair.
type Status int

// The statuses that [State.Begin] returns.
const (
	// Proven: prefill has answered a ticket of this decode incarnation.
	Proven Status = iota + 1
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

// Strikes is how many tickets in a row may go wrong before the pair is stopped. Load can make one ticket late, and a
// block that is gone makes one fail; three in a row show that the pair itself does not work.
const Strikes = 3

// A stopped pair gets no ticket for RetrialAfter, and for twice as long after each further stop, up to retrialMax: a
// trial that is not answered costs one client the time limit.
const (
	RetrialAfter = time.Minute
	retrialMax   = 30 * time.Minute
)

// State is what is known of a prefill incarnation together with a decode incarnation: whether prefill answers
// decode's tickets, whether decode reads prefill's hand-overs (loads.go), and whether prefill may carry releases to decode.
//
// Some engines never answer a ticket: a prefill instance without bidirectional_kv_xfer parks the request for ever
// (vLLM nixl/pull_scheduler.py), and so does kv_load_failure_policy "recompute" on vLLM 0.32 when blocks cannot be
// loaded. The first ticket on a pair is therefore a trial with a time limit, one at a time. Other engines answer each
// ticket with 500.
//
// It is safe for concurrent use. The methods of a nil State do nothing, and it allows no reuse.
type State struct {
	now   func() time.Time
	over  bool            // one of the incarnations had ended when it was made; only its caller has it
	stops []*atomic.Int64 // the counts of stopped pairs that it belongs to

	mu       sync.Mutex // guards the rest; no other lock is taken under it
	tickets  trials
	loads    trials
	loaded   bool // a hand-over, ever
	counted  bool // it is among the stopped pairs
	dropped  bool // the incarnations do not share it any more
	releases releases
}

// New returns the state of a pair that was never tried. It counts itself in stops while it is stopped.
func New(now func() time.Time, stops ...*atomic.Int64) *State {
	return &State{now: now, stops: stops, loads: trials{proven: true}}
}

// Over returns the state of a pair of which an incarnation has ended: it allows no reuse, because a state that is not
// shared would allow one trial per caller.
func Over(now func() time.Time) *State {
	return &State{now: now, over: true, loads: trials{proven: true}}
}

// trials is what is known of a pair's tickets, or of its hand-overs. The zero value is a pair that was never tried.
type trials struct {
	proven  bool
	trial   bool          // a turn is the pair's trial now
	strikes int           // those that went wrong since the last answer
	pause   time.Duration // length of the last stop, 0 if there was none since the last answer
	until   time.Time     // when the last stop ends
	of      string        // the client whose tickets have gone wrong since the last answer
	all     bool          // several clients' have, or one of our own: a stop holds for everybody
}

// Begin asks for permission to offer a ticket of decode to prefill, for a turn of a client or, with "", for a leg of our
// own. A caller that gets Trial or Proven must call End, or the pair stays in its trial.
func (ps *State) Begin(client string) Status {
	if ps == nil {
		return NoReuse
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.over {
		return Busy
	}
	return ps.tickets.begin(client, ps.now())
}

func (r *trials) begin(client string, now time.Time) Status {
	status := r.status(client, now)
	r.trial = r.trial || status == Trial
	return status
}

// status is what begin returns. A stop by the tickets of one client holds for that client: the next turn of another, or
// leg of our own, tries the pair.
func (r *trials) status(client string, now time.Time) Status {
	switch {
	case r.proven:
		return Proven
	case r.trial:
		return Busy
	case now.Before(r.until) && (r.all || client == r.of):
		return NoReuse
	}
	return Trial
}

// Status returns what Begin would return to a leg of our own, and begins nothing.
func (ps *State) Status() Status {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.over {
		return Busy
	}
	return ps.tickets.status("", ps.now())
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
func (ps *State) End(outcome Outcome, client string) (pause time.Duration, resumed bool) {
	if ps == nil {
		return 0, false
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	pause, resumed = ps.tickets.end(outcome, client, ps.now())
	ps.count()
	return pause, resumed
}

func (r *trials) end(outcome Outcome, client string, now time.Time) (pause time.Duration, resumed bool) {
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
		return 0, resumed
	}
	r.all = r.all || client == "" || r.of != "" && r.of != client
	r.of = client
	r.strikes++
	if r.strikes < Strikes && r.pause == 0 && (r.proven || outcome == Failed) {
		return 0, false
	}
	pause = min(max(RetrialAfter, 2*r.pause), retrialMax)
	*r = trials{pause: pause, until: now.Add(pause), of: r.of, all: r.all}
	return pause, false
}

// stopped reports whether begin would return NoReuse.
func (r *trials) stopped(now time.Time) bool { return !r.proven && !r.trial && now.Before(r.until) }

// count adds the pair to the stopped ones while it is stopped, or removes it. It needs ps.mu.
func (ps *State) count() {
	stopped := !ps.dropped && ps.tickets.pause+ps.loads.pause > 0
	if stopped == ps.counted || ps.over {
		return
	}
	ps.counted = stopped
	change := int64(1)
	if !stopped {
		change = -1
	}
	for _, count := range ps.stops {
		count.Add(change)
	}
}

// OfOneClient reports whether the pair's stop holds for one client alone.
func (ps *State) OfOneClient() bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.tickets.pause > 0 && !ps.tickets.all
}

// Drop removes the pair from the counts, for good: its incarnations do not share it any more.
func (ps *State) Drop() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.dropped = true
	ps.count()
}

// Stopped reports whether Begin would return NoReuse.
func (ps *State) Stopped(now time.Time) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.tickets.stopped(now)
}

// Retry ends the pair's stops and the pause of its releases.
func (ps *State) Retry() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.releases.paused, ps.tickets.until, ps.loads.until = time.Time{}, time.Time{}, time.Time{}
}
