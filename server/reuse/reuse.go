// Package reuse finds, proves and claims the ticket that a turn may use, and makes the ticket that the turn leaves. Its steps take and return values,
// and know no turn:
//
//   - admitted.go: what a request means for reuse ([Admitted]), and the ids of an attempt ([Proof])
//   - found.go: what the store has of the conversation ([Found])
//   - choose.go: which tickets the attempt may use and how much of each, or the reason of a miss ([Choice])
//   - claim.go: takes a ticket ([Claim]), and settles it
//   - outcome.go: what was reused, and how much work that saved ([OutcomeOf])
//   - make.go: makes the ticket of an answer, or says why there is none
//   - keep.go: stores the ticket, or releases its blocks
//
// Every doubt is a miss. A ticket is taken in one atomic step before any byte of it is sent. Its holder, an incarnation of decode, must have been
// seen alive, and the ticket must still offer what the look-up showed. Every claim is settled: the ticket was sent, goes back into the store because
// nothing of it was sent, or is given up.
package reuse

import (
	"context"
	"log/slog"

	"carryover/convcache"
	"carryover/server/pins"
	"carryover/server/proof"
	"carryover/server/quarantine"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// Config says which tickets are worth using, and how long they live.
type Config struct {
	MinTokens int     // the least tokens for which a ticket is used
	MinShare  float64 // the least share of its tokens, 0 to 1
	Logger    *slog.Logger
}

// Deps is what Tickets works with. All fields are required.
type Deps struct {
	Pins      *pins.Pins
	Store     convcache.Store
	Fleet     *fleet.Fleet
	Connector upstream.Connector
	Epoch     *quarantine.Watch
	Tokens    *proof.Tokens
	Outlines  convcache.ChainKey // the key of tickets' outlines
}

// Tickets finds the tickets of turns, and makes new ones. It is safe for concurrent use.
type Tickets struct {
	cfg  Config
	deps Deps
}

// New returns the Tickets of a server.
func New(cfg Config, deps Deps) *Tickets { return &Tickets{cfg: cfg, deps: deps} }

// giveUp takes branches that no later turn needs out of the store. The blocks of tickets are released, and notes are forgotten.
func (t *Tickets) giveUp(ctx context.Context, branches []convcache.KeyedBranch, model string) {
	for i := range branches {
		t.deps.Pins.GiveUp(ctx, branches[i].Key, branches[i].ID, model)
	}
}
