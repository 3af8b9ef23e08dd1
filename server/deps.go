package server

import (
	"context"
	"time"

	"carryover/convcache"
	"carryover/server/proof"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// Store keeps tickets between turns. Every method returns within the store's
// time limit, and a failure is an outcome, never an error for the client.
type Store interface {
	// Peek lists what the conversation holds, newest first.
	Peek(ctx context.Context, conversation convcache.Key) ([]convcache.Branch, convcache.Outcome)
	// Take removes exactly that ticket; at most one caller ever gets it.
	Take(ctx context.Context, conversation convcache.Key, id convcache.TicketID) (convcache.Ticket, convcache.Outcome)
	// Put keeps a ticket for ttl and hands back what it displaced.
	Put(ctx context.Context, conversation convcache.Key, ticket convcache.Ticket, ttl time.Duration) ([]convcache.Ticket, convcache.Outcome)
	// Len is the number of conversations held.
	Len() int
	// EvictStale drops what has expired and returns how many conversations that
	// were.
	EvictStale() int
}

// RedisUp is the state of a Redis that answers.
const RedisUp = "up"

// Legs runs the legs of turns. Errors are *upstream.LegError.
type Legs interface {
	Prefill(ctx context.Context, leg upstream.Leg) (upstream.PrefillAnswer, error)
	// HandBack runs a leg that Connector.HandBack or Connector.Release has made, up to the first event of its answer.
	HandBack(ctx context.Context, leg upstream.Leg) (upstream.PrefillAnswer, error)
	// Decode returns when the headers of the answer have arrived. The leg outlives ctx as long as limits.Gone says.
	Decode(ctx context.Context, leg upstream.Leg, limits upstream.Limits) (*upstream.Stream, error)
	// Reach returns an error if the instance takes no connection. Nothing is sent.
	Reach(ctx context.Context, instance *upstream.Instance) error
	// Close drops the connections that no leg is using.
	Close()
	// Fetch returns the status of an answer, 0 if none has begun, and its body, of most bytes at most.
	Fetch(ctx context.Context, instance *upstream.Instance, path, authorization string, most int64) (status int, body []byte, err error)
}

// Connector knows one KV connector of vLLM: what its legs carry, and in which order they run. It maps values to values, and its
// errors mean that an object can't be used; nothing of it may be sent then.
type Connector interface {
	Traits() upstream.Traits
	// Plan says how an attempt runs.
	Plan(transfer upstream.Transfer) (upstream.Plan, error)
	// Keep says what decode's last kv_transfer_params are worth to a next turn. blockSize is decode's in tokens, 0 if it is not
	// known. With upstream.ErrMisplaced they are worth nothing, and what they name is returned all the same.
	Keep(final []byte, blockSize int) (upstream.Kept, error)
	// Release makes the leg that has a ticket's holder free its blocks, for a model that the engines serve.
	Release(offer upstream.TicketOffer, model string) (upstream.ReleaseLeg, error)
	// HandBack makes the leg that has prefill read all of a ticket into its prefix cache, under the ids of the offer, a JSON list, and
	// the salt, "" for none.
	HandBack(offer upstream.TicketOffer, model, salt string) (upstream.ReleaseLeg, error)
}

// SharedQuarantines shares with other replicas which starts of prefill instances are barred. A start is named by URL, data-parallel rank
// and process_start_time_seconds. An error costs a delay: both are called again within a second.
type SharedQuarantines interface {
	QuarantineIncarnation(ctx context.Context, start string) error
	// QuarantinedIncarnations says of each start whether a replica has barred it.
	QuarantinedIncarnations(ctx context.Context, starts []string) ([]bool, error)
}

// SharedLineages shares with other replicas which KV is in doubt. An error costs a delay: both are called again within a second.
type SharedLineages interface {
	Quarantine(ctx context.Context, q convcache.Quarantine) error
	// Quarantines returns what all replicas have found.
	Quarantines(ctx context.Context) ([]convcache.Quarantine, error)
}

// Prefillers adds the prefill instance that a request names to the fleet.
type Prefillers interface {
	// Admit returns the name of the prefill instance at host:port, which the fleet has from then on. The error says why the
	// instance is not permitted.
	Admit(hostPort string) (name string, err error)
}

// Deps is what a Server works with; all fields are required, but RedisState, SharedBars, SharedQuarantines, Observers and Sample.
type Deps struct {
	Store Store
	// RedisState says whether Redis answers: RedisUp, or another word. nil if tickets
	// live in this process.
	RedisState        func() string
	SharedQuarantines SharedQuarantines // nil without Redis

	SharedLineages SharedLineages // nil without Redis

	// Prefillers has prefill instances that requests name, in place of those of the fleet's source; nil where requests name none.
	Prefillers Prefillers

	Fleet     *fleet.Fleet
	Legs      Legs
	Connector Connector
	Secret    convcache.Secret
	// Tokens and History prove the turns of the two modes.
	Tokens, History proof.Proof

	Observers []Observer // of each turn's record, besides the log
	Sample    Sample     // which turns spans are kept of; nil if turns are not traced
}
