package pins

import (
	"time"

	"carryover/account"
	"carryover/convcache"
	"carryover/upstream/fleet"
)

// pinned is what tickets pin on one incarnation of decode.
type pinned struct {
	incarnation *fleet.Incarnation
	accounts    account.Pool[*pin] // weighed by tokens
	tokens      int
	wake        int    // more tokens than these call for a round of the budget, 0 for the whole budget
	rounds      rounds // rounds of the budget (budget.go)
}

// pin is one ticket in the store.
type pin struct {
	key       convcache.Key
	id        convcache.TicketID
	model     string
	tokens    int // in whole blocks
	freshAsOf time.Time
	deadline  time.Time
	of        *pinned
	place     *account.Place[*pin]
	epoch     int64
	name      uint64    // of its blocks, see states
	release   time.Time // when it is released if no turn takes it, zero for never
	shown     string    // the conversation's name to operators, "" if that is its key's
}
