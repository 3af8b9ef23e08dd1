package server

import (
	"context"
	"log/slog"
	"time"

	"carryover/convcache"
	"carryover/server/admission"
	"carryover/server/pins"
	"carryover/server/quarantine"
	"carryover/server/record"
	"carryover/server/request"
	"carryover/server/reuse"
	"carryover/server/turn"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// Config configures a Server. Durations and sizes must be positive; cmd/carryover/config validates them.
type Config struct {
	turn.RoutingConfig
	ReuseConfig
	pins.ReleaseConfig
	pins.HandBackConfig
	request.Config // how requests are read
	LimitConfig
	turn.LegConfig
	TimeConfig

	Version    string // shown at /version
	Logger     *slog.Logger
	Tell       Tellers
	LogClients request.ClientsMode
}

// Tellers tell operators what happens, as one plain sentence each. A nil one tells nobody.
type Tellers struct{ Quarantine, Stop, Drain func(sentence string) }

// ReuseConfig says which tickets are worth using.
type ReuseConfig struct {
	ReuseMinTokens    int           // a ticket is not used for fewer tokens
	ReuseMinShare     float64       // nor for a smaller share of its tokens, 0 to 1
	ReuseTrialTimeout time.Duration // how long a leg with a ticket may take beyond a usual prefill
	TTL               time.Duration // longest life of a ticket
}

// LimitConfig bounds what clients may use.
type LimitConfig struct {
	MaxInflightBytes int64 // memory of bodies; one client gets a quarter, and at least one body of MaxBodyBytes
	MaxStreams       int   // turns at once
	MaxConnections   int   // client connections at once; further ones wait to be accepted, or replace idle ones
	admission.QueueConfig
}

// TimeConfig bounds the waits of the server.
type TimeConfig struct {
	StoreTimeout        time.Duration // bounds each operation of the store; 0 is no bound, for a store that never waits
	ShutdownGrace       time.Duration
	DrainDelay          time.Duration // how long a draining server with open turns still accepts connections; 0: 5 s, and at most a sixth of ShutdownGrace
	ClientHeaderTimeout time.Duration
}

// reuse returns the configuration of package reuse.
func (c *Config) reuse() reuse.Config {
	return reuse.Config{
		MinTokens: c.ReuseMinTokens, MinShare: c.ReuseMinShare, TTL: c.TTL, StoreTimeout: c.StoreTimeout, Logger: c.Logger,
	}
}

// Store keeps tickets between turns. Every method returns within the store's time limit. A failure is an outcome, which costs a miss;
// clients never get an error for it.
type Store interface {
	// Peek lists the tickets and notes of at most [convcache.MaxKeys] keys, those of the first key first and the newest of a key first, and
	// removes nothing.
	Peek(ctx context.Context, keys []convcache.Key) ([]convcache.KeyedBranch, convcache.Outcome)
	// Take removes the ticket with this id. At most one caller ever gets it.
	Take(ctx context.Context, conversation convcache.Key, id convcache.TicketID) (convcache.Ticket, convcache.Outcome)
	// Put stores a ticket for ttl and returns the tickets that it displaced.
	Put(ctx context.Context, conversation convcache.Key, ticket convcache.Ticket, ttl time.Duration) ([]convcache.Ticket, convcache.Outcome)
	// Len is the number of conversations that have something in the store.
	Len() int
	// EvictStale drops expired tickets and returns how many conversations it removed.
	EvictStale() int
}

// RedisUp is what Deps.RedisState returns while Redis answers.
const RedisUp = "up"

// Shared is what replicas share besides tickets.
type Shared interface {
	quarantine.Shared
	pins.Shared
}

// Legs runs the legs of turns. Errors are *upstream.LegError.
type Legs interface {
	turn.Legs
	// HandBack runs a leg made by Connector.HandBack or Connector.Release, up to the first event of its answer.
	HandBack(ctx context.Context, leg upstream.Leg) (upstream.PrefillAnswer, error)
	// Reach returns an error if the instance accepts no connection. It sends nothing.
	Reach(ctx context.Context, instance *upstream.Instance) error
	// Fetch sends a GET. It returns the answer's status, 0 if no answer has begun, and its body of at most so many bytes.
	Fetch(ctx context.Context, instance *upstream.Instance, path, authorization string, most int64) (status int, body []byte, err error)
}

// Connector knows one KV connector of vLLM: what its legs carry, and in which order they run. Its methods only compute. An error means
// that an object can't be used, and then nothing of it may be sent.
type Connector interface {
	turn.Planner
	// ParseTicket reads decode's last kv_transfer_params for the next turn. blockSize is decode's block size in tokens, 0 if it is not known.
	// With upstream.ErrMisplaced no turn can use the blocks, but ParseTicket still returns them, so that they can be released.
	ParseTicket(final []byte, blockSize int) (upstream.TicketParams, error)
	// Release makes the leg that has a ticket's decode engine free its blocks. model must be one that the engines serve.
	Release(offer upstream.TicketOffer, model string) (upstream.ReleaseLeg, error)
	// HandBack makes the leg that has prefill read all of a ticket into its prefix cache, under the offer's token ids, which are a JSON
	// list, and under the cache_salt, "" for none.
	HandBack(offer upstream.TicketOffer, model, salt string) (upstream.ReleaseLeg, error)
}

// Deps is what a Server works with. All fields are required, except RedisState, Shared, Prefillers, Observers
// and Sample.
type Deps struct {
	Store Store
	// RedisState returns RedisUp while Redis answers, and a word for the fault otherwise. It is nil if tickets live in this process.
	RedisState func() string
	Shared     Shared // nil without Redis

	// Prefillers admits the prefill instances that requests name, in place of those of the fleet's source; nil where requests name none.
	Prefillers request.Prefillers

	Fleet     *fleet.Fleet
	Legs      Legs
	Connector Connector
	Secret    convcache.Secret

	Observers []record.Observer // of each turn's record, besides the log
	Sample    record.Sample     // decides which turns have spans; nil if turns are not traced
}
