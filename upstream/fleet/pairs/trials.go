package pairs

import "time"

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

func (t *trials) begin(client string, now time.Time) Status {
	status := t.status(client, now)
	t.trial = t.trial || status == Trial
	return status
}

// status is what begin returns. A stop by the tickets of one client holds for that client: the next turn of another, or
// leg of our own, tries the pair.
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
