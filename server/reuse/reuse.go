package reuse

import (
	"context"
	"log/slog"
	"time"

	"carryover/convcache"
	"carryover/server/pins"
	"carryover/server/proof"
	"carryover/server/quarantine"
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
	Connector  Connector
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

// Connector knows one KV connector of vLLM.
type Connector interface {
	Traits() upstream.Traits
	// ParseTicket reads decode's last kv_transfer_params for the next turn. blockSize is decode's block size in tokens, 0 if it is not known.
	// With upstream.ErrMisplaced no turn can use the blocks, but ParseTicket still returns them, so that they can be released.
	ParseTicket(final []byte, blockSize int) (upstream.TicketParams, error)
}

// Tickets serves the turns of a server: it begins their proofs, finds their tickets, and makes those that they leave.
type Tickets struct {
	Prover *Prover
	Finder *Finder
	Maker  *Maker
}

// New returns what the turns of a server find and make tickets with.
func New(cfg Config, deps Deps) Tickets {
	return Tickets{
		Prover: &Prover{
			tokens: deps.Tokens, outlines: deps.Outlines, reuses: deps.Connector.Traits().Reuses, arena: deps.Pins.Arena(),
		},
		Finder: &Finder{cfg: &cfg, deps: &deps},
		Maker:  &Maker{cfg: &cfg, deps: &deps},
	}
}
