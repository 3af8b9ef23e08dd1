package server

import (
	"log/slog"
	"time"

	"carryover/server/admission"
	"carryover/server/pins"
	"carryover/server/request"
	"carryover/server/reuse"
	"carryover/server/turn"
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
