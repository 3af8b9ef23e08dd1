package server

import (
	"context"
	"time"

	"carryover/convcache"
	"carryover/upstream"
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

// Picker chooses instances and remembers which of them answer.
type Picker interface {
	// Acquire returns upstream.ErrNoInstance if none is left.
	Acquire(role upstream.Role, key string, exclude []string) (instance *upstream.Instance, release func(), err error)
	Report(instance *upstream.Instance, refused bool)
	Reachable(role upstream.Role, name string) bool
	Instances(role upstream.Role) []*upstream.Instance
	Up(role upstream.Role) int
}

// Engine runs legs. Errors are *upstream.LegError.
type Engine interface {
	Prefill(ctx context.Context, leg upstream.Leg) (upstream.PrefillAnswer, error)
	// Decode returns when the headers of the answer have arrived. The leg outlives ctx as long as limits.Gone says.
	Decode(ctx context.Context, leg upstream.Leg, limits upstream.Limits) (*upstream.Stream, error)
	// Fetch returns the status of an answer, 0 if none has begun, and its body, of most bytes at most.
	Fetch(ctx context.Context, instance *upstream.Instance, path, authorization string, most int64) (status int, body []byte, err error)
	// Close drops the connections that no leg is using.
	Close()
}

// Connector says what each leg carries for one KV connector. Its errors mean that
// an object can't be used; nothing of it may be sent then.
type Connector interface {
	PrefillParams(offer upstream.TicketOffer) ([]byte, error)
	DecodeParams(answered, promptIDs []byte, from *upstream.Instance) (params []byte, cached int, err error)
	Keep(final []byte) (upstream.Kept, error)
}

// Templates tells whether a finished turn, rendered as history by that start of an
// instance, begins with what was rendered to generate it. An engine that can't be
// asked counts as one where it does. Unknown means that this could not be found out.
type Templates interface {
	AppendOnly(ctx context.Context, instance *upstream.Instance, incarnation string, template upstream.Template, authorization string) upstream.Finding
}

// SharedBars shares with other replicas which starts of prefill instances are barred. A start is named by URL and
// incarnation. An error costs a delay: both are called again within a second.
type SharedBars interface {
	Bar(ctx context.Context, start string) error
	// Barred says of each start whether a replica has barred it.
	Barred(ctx context.Context, starts []string) ([]bool, error)
}

// Deps is what a Server works with; all fields are required, but RedisState and SharedBars.
type Deps struct {
	Store Store
	// RedisState says whether Redis answers: RedisUp, or another word. nil if tickets
	// live in this process.
	RedisState func() string
	SharedBars SharedBars // nil without Redis

	Pool      Picker
	Engine    Engine
	Connector Connector
	Templates Templates
	Trials    *upstream.Trials
	Secret    convcache.Secret

	// What is known of each start of an engine.
	Incarnations *upstream.Incarnations
	Capability   *upstream.Capability
	Parity       *upstream.Parity
	Bars         *upstream.Bars
	Tokenizer    *upstream.Tokenizer
}
