package pairs

import "time"

// Status says whether a turn may offer a ticket on a pair.
type Status int

// The statuses that [State.Begin] returns.
const (
	// Proven: prefill has answered a ticket of this decode incarnation.
	Proven Status = iota + 1
	// Trial: this turn is the pair's only trial until it is over.
	Trial
	// Busy: another turn is the pair's trial.
	Busy
	// NoReuse: the pair is stopped, and its next trial is not due yet.
	NoReuse
)

// Outcome is how a ticket on a pair ended.
type Outcome int

// The outcomes of a ticket.
const (
	// Inconclusive: the ticket was never sent, was refused by the client's fault, or was lost with the connection or
	// the client.
	Inconclusive Outcome = iota
	Answered
	// Unanswered: no answer within the time limit.
	Unanswered
	// Failed: prefill answered 5xx.
	Failed
)

// Strikes is how many failed tickets in a row stop a pair. Load can make one ticket late, and a lost block makes one
// fail; three show that the pair does not work.
const Strikes = 3

// A stop lasts RetrialAfter, and twice as long each further time, up to retrialMax: an unanswered trial costs one
// client the time limit.
const (
	RetrialAfter = time.Minute
	retrialMax   = 30 * time.Minute
)

// trials counts a pair's tickets or hand-overs. The zero value was never tried.
type trials struct {
	proven  bool
	trial   bool
	strikes int           // since the last answer
	pause   time.Duration // length of the last stop, 0 if there was none since the last answer
	until   time.Time     // end of the last stop
	of      string        // the client whose tickets failed since the last answer
	all     bool          // tickets of several clients, or of our own, have failed: a stop holds for everybody
}

func (t *trials) begin(client string, now time.Time) Status {
	status := t.status(client, now)
	t.trial = t.trial || status == Trial
	return status
}

// status is what begin returns. A stop by one client's tickets holds for that client: the next turn of another, or our
// own leg, tries the pair.
func (t *trials) status(client string, now time.Time) Status {
	switch {
	case t.proven:
		return Proven
	case t.trial:
		return Busy
	case now.Before(t.until) && (t.all || client == t.of):
		return NoReuse
	}
	return Trial
}

func (t *trials) end(outcome Outcome, client string, now time.Time) (pause time.Duration, resumed bool) {
	if !t.proven && !t.trial {
		return 0, false
	}
	t.trial = false
	switch outcome {
	case Inconclusive:
		return 0, false
	case Answered:
		resumed = t.pause > 0
		*t = trials{proven: true}
		return 0, resumed
	}
	t.all = t.all || client == "" || t.of != "" && t.of != client
	t.of = client
	t.strikes++
	if t.strikes < Strikes && t.pause == 0 && (t.proven || outcome == Failed) {
		return 0, false
	}
	pause = min(max(RetrialAfter, 2*t.pause), retrialMax)
	*t = trials{pause: pause, until: now.Add(pause), of: t.of, all: t.all}
	return pause, false
}
