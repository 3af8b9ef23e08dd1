package pick

import (
	"time"

	"carryover/server/record"
	"carryover/server/request"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
)

// Attempt is what a pick needs to know of a turn and of the attempt that it is for.
type Attempt struct {
	Request    *request.Request
	Body       *body.Request
	fleet.Hint                 // for the routing policies; the pick sets its Tokens
	Owned      []fleet.Holding // those of its Holds that are certainly of this conversation, and not of another that began alike
	Tickets    bool            // the attempt may use or leave a ticket, so that it has to know the incarnations that run now
	Record     *record.Builder // is told the path, the uncached tokens and the waits

	// The operator's choice between prefill with decode and decode alone.
	Threshold    int  // with fewer uncached tokens decode serves alone; 0 for never
	PrefillError bool // the client gets an error if prefill can't serve, and decode does not serve alone
	Earlier
}

// Earlier is what the attempts of a turn so far mean for its next pick.
type Earlier struct {
	Failed        *upstream.LegError // the failure that led to the attempt, nil for the first attempt
	Excluded      []*fleet.Engine    // engines that are not picked any more
	NoPrefill     bool               // prefill is not asked any more
	PrefillFailed bool               // a prefill leg was sent and failed, or prefill has refused the model
	TooLong       bool               // prefill has refused the prompt, which may be longer than it takes
	Queued        time.Duration      // for slots, all waits of the turn together
	Refreshed     bool               // the engines have been asked for their models during this turn
}

// gaveUp returns how many engines of a role are not picked any more.
func (e *Earlier) gaveUp(role upstream.Role) (n int) {
	for _, engine := range e.Excluded {
		if engine.Role == role {
			n++
		}
	}
	return n
}
