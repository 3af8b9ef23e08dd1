package server

import (
	"log/slog"
	"time"

	"carryover/convcache"
	"carryover/server/admission"
	"carryover/server/events"
	"carryover/server/pins"
	"carryover/server/quarantine"
	"carryover/server/record"
	"carryover/server/request"
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
	request.Config
	LimitConfig
	turn.LegConfig
	TimeConfig

	Version    string // shown at /version
	Logger     *slog.Logger
	Tell       func(kind events.Kind, sentence string) // takes a plain sentence about each event, for operators; may be nil
	LogClients request.ClientsMode
}

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
	MaxConnections   int   // client connections at once; further ones replace idle ones or wait to be accepted
	admission.QueueConfig
}

// TimeConfig bounds the waits of the server.
type TimeConfig struct {
	StoreTimeout        time.Duration // bounds each operation of the store; 0 is no bound, for a store that never waits
	ShutdownGrace       time.Duration
	DrainDelay          time.Duration // how long a draining server with open turns still accepts connections; 0: 5 s, and at most a sixth of ShutdownGrace
	ClientHeaderTimeout time.Duration
}

// RedisUp is Deps.RedisState's word while Redis answers.
const RedisUp = "up"

// Shared is the state that replicas share besides tickets.
type Shared interface {
	quarantine.Shared
	pins.Shared
}

// Deps is what a Server works with. All fields are required, except RedisState, Shared, Prefillers, Observers and Sample.
type Deps struct {
	Store convcache.Store
	// RedisState returns RedisUp while Redis answers, else a word for the fault. It is nil if tickets live in this process.
	RedisState func() string
	Shared     Shared // nil without Redis

	// Prefillers admits prefill instances that requests name, instead of the fleet's source; nil if requests name none.
	Prefillers request.Prefillers

	Fleet     *fleet.Fleet
	Legs      upstream.Legs
	Connector upstream.Connector
	Secret    convcache.Secret

	Observers []record.Observer // get each turn's record, as the log does
	Sample    record.Sample     // decides which turns have spans; nil for none
}
