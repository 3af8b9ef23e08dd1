package pick

import (
	"time"

	"carryover/server/request"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
)

// Attempt is what a pick needs to know of a turn and its attempt.
type Attempt struct {
	Request    *request.Request
	Body       *body.Request
	fleet.Hint                 // for the routing policies; the pick sets Tokens
	Owned      []fleet.Holding // the holdings in Holds that certainly belong to this conversation, not to another that began alike
	Tickets    bool            // the attempt may use or leave a ticket, so it has to know which incarnations run now

	// The operator's choice between prefill with decode and decode alone.
	Threshold    int  // with fewer uncached tokens decode serves alone; 0 for never
	PrefillError bool // if prefill can't serve, the client gets an error, and decode does not serve alone
	Earlier
}

// Earlier is what a turn's earlier attempts mean for its next pick.
type Earlier struct {
	Failed        *upstream.LegError // the failure before this attempt, nil for the first attempt
	Excluded      []*fleet.Engine    // not picked any more
	NoPrefill     bool               // prefill is not picked any more
	PrefillFailed bool               // a prefill leg was sent and failed, or prefill has refused the model
	TooLong       bool               // prefill has refused the prompt, perhaps because of its length
	Queued        time.Duration      // all waits of the turn for slots
	Refreshed     bool               // this turn has asked the engines for their models
}

func (e *Earlier) gaveUp(role upstream.Role) (n int) {
	for _, engine := range e.Excluded {
		if engine.Role == role {
			n++
		}
	}
	return n
}
