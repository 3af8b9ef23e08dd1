// Package reuse finds, proves and claims the ticket that a turn may use, and makes the ticket that the turn leaves. Its steps hand values to
// each other and know no turn:
//
//   - admitted.go: what a request means for reuse ([Admitted]), and the ids that an attempt proves tokens with ([Proof])
//   - found.go: what the store has of the conversation ([Found])
//   - choose.go: which tickets the attempt may use, and how much of them, or the reason of a miss ([Choice])
//   - claim.go: takes a ticket ([Claim]), and settles what becomes of it
//   - outcome.go: what was reused and how much work that saved ([OutcomeOf])
//   - make.go: makes the ticket of an answer, or says why there is none
//   - keep.go: stores the ticket, or has its blocks released
//
// Every doubt is a miss. A ticket is taken in one atomic step before any byte of it is sent, only from the incarnation of decode that was
// seen alive as its holder, and only if it still offers what the look has promised. Every claim is settled: the ticket was sent, goes back
// into the store because nothing of it was sent, or is given up.
package reuse

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"carryover/convcache"
	"carryover/server/pins"
	"carryover/server/proof"
	"carryover/server/quarantine"
	"carryover/server/storetime"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// Config says which tickets are worth using, and how they are made.
type Config struct {
	MinTokens    int           // a ticket is not used for fewer tokens
	MinShare     float64       // nor for a smaller share of its tokens, 0 to 1
	TTL          time.Duration // longest life of a ticket
	StoreTimeout time.Duration // bounds each operation of the store
	Logger       *slog.Logger
}

// Deps is what tickets are found and made with. All fields are required.
type Deps struct {
	Pins       *pins.Pins
	Store      Store
	Fleet      *fleet.Fleet
	Legs       Fetcher
	Connector  pins.Connector
	Epoch      *quarantine.Epoch
	Tokens     *proof.Tokens
	Outlines   convcache.ChainKey                 // key of tickets' outlines
	Background func(what, id string, work func()) // runs work that no client waits for
}

// Store keeps tickets between turns.
type Store interface {
	// Peek lists the tickets and notes of at most [convcache.MaxKeys] keys, those of the first key first and the newest of a key first, and
	// removes nothing.
	Peek(ctx context.Context, keys []convcache.Key) ([]convcache.KeyedBranch, convcache.Outcome)
}

// Fetcher asks engines.
type Fetcher interface {
	// Fetch sends a GET. It returns the answer's status, 0 if no answer has begun, and its body of at most so many bytes.
	Fetch(ctx context.Context, instance *upstream.Instance, path, authorization string, most int64) (status int, body []byte, err error)
}

// Tickets finds the tickets of turns and makes those that they leave. It is safe for concurrent use.
type Tickets struct {
	cfg        Config
	deps       Deps
	names      names
	plugInless sync.Map // engine name -> the incarnation for which the log last said that streams of Messages bring no params
}

// New returns what the turns of a server find and make tickets with.
func New(cfg Config, deps Deps) *Tickets { return &Tickets{cfg: cfg, deps: deps} }

// bounded returns a context for operations of the store, which outlive the client.
func (t *Tickets) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return storetime.Limit(ctx, t.cfg.StoreTimeout)
}

// giveUp takes branches that no later turn needs out of the store. Decode frees the blocks of tickets, and notes are forgotten.
func (t *Tickets) giveUp(ctx context.Context, branches []convcache.KeyedBranch, model string) {
	for i := range branches {
		t.deps.Pins.GiveUp(ctx, branches[i].Key, branches[i].ID, model)
	}
}
