package server

import (
	"log/slog"
	"net/netip"
	"time"
)

// ProofMode names the proof that a model's turns have; see package proof.
type ProofMode string

// The modes of proof.
const (
	// ProofAuto reuses only what is proven by tokens.
	ProofAuto ProofMode = "auto"
	// ProofHistory reuses a ticket when the request's messages begin with exactly
	// what it covers. It is the weaker proof: equal text may still tokenise
	// differently.
	ProofHistory ProofMode = "history"
)

// Config configures a Server. Durations and sizes must be positive; package
// cmd/carryover validates them.
type Config struct {
	Proof       ProofMode
	ModelProofs map[string]ProofMode // per model; Proof for the others

	RoutingConfig
	ReuseConfig
	ReleaseConfig
	HandBackConfig
	IdentityConfig
	PassingConfig
	LimitConfig
	TimeConfig

	RedisRequired bool   // /readyz fails while Redis does not answer
	Version       string // shown at /version
	Logger        *slog.Logger
}

// PrefillFailure says what becomes of a turn whose prefill leg failed.
type PrefillFailure string

// What may become of it.
const (
	// PrefillRetryOther tries another prefill instance, then decode alone, for a bounded number of turns at once.
	PrefillRetryOther PrefillFailure = "retry_other"
	// PrefillDecodeOnly has decode prefill by itself at once, for a bounded number of turns.
	PrefillDecodeOnly PrefillFailure = "decode_only"
	// PrefillError gives the client the error.
	PrefillError PrefillFailure = "error"
)

// RoutingConfig says which way turns go. It can be changed while the server runs.
type RoutingConfig struct {
	// DisaggThreshold sends turns of fewer uncached prompt tokens to decode alone; 0 sends none.
	DisaggThreshold int
	PrefillFailure  PrefillFailure // PrefillRetryOther if empty
}

// ReuseConfig says which tickets are worth using.
type ReuseConfig struct {
	ReuseMinTokens    int           // fewer tokens are left alone
	ReuseMinShare     float64       // and so is a smaller share of a ticket, 0 to 1
	ReuseHybrid       bool          // use tickets of several block groups too, whole
	ReuseTrialTimeout time.Duration // how long a leg with a ticket may take beyond a usual prefill
	TTL               time.Duration // longest life of a ticket
}

// ReleaseConfig says how the blocks of unused tickets are freed.
type ReleaseConfig struct {
	Release        bool          // free them before decode does
	ReleaseBacklog int           // more of them per decode instance are worked off at once
	BranchKeep     time.Duration // how long a branch lives after the conversation has left it
	// PinnedShare is how much of a decode instance's KV cache tickets may pin, 0 to 1, before the oldest are released.
	PinnedShare float64
}

// HandBackMode says when the KV of a ticket is handed back to prefill.
type HandBackMode string

// The modes of hand-back.
const (
	HandBackIdle HandBackMode = "idle" // when no turn has used the ticket for a while
	HandBackNow  HandBackMode = "now"  // at the end of each turn
	HandBackOff  HandBackMode = "off"  // never; the zero value too
)

// HandBackConfig says when tickets are handed back: prefill reads what decode holds into its own prefix cache, and decode is free.
type HandBackConfig struct {
	HandBack       HandBackMode
	HandBackAfter  time.Duration // how long a ticket waits for a turn, with HandBackIdle
	HandBackMemory int64         // bytes that the ids of tickets may take
}

// IdentityConfig says how conversations and tenants are told apart.
type IdentityConfig struct {
	Sources      []string // conversation id sources, in order
	TenantHeader string   // "" = tenant from the bearer token; a request that has it twice is refused
	TenantSalt   bool     // add a cache_salt per tenant to both legs
}

// PassingConfig says what passes between clients and engines.
type PassingConfig struct {
	BufferStreams        bool // ask decode for whole answers, and make streams of them, where that leaves a ticket
	StripClientParams    bool // remove client-sent kv_transfer_params instead of refusing them
	ExposeParams         bool // leave kv_transfer_params in what clients see
	ForwardAuthorization bool // send the client's credential to the engines
}

// LimitConfig bounds what clients may use.
type LimitConfig struct {
	MaxBodyBytes     int64
	MaxInflightBytes int64          // memory of bodies; one client gets a quarter, and at least one body of MaxBodyBytes
	MaxStreams       int            // turns at once
	MaxConnections   int            // client connections at once; more wait to be accepted, or take the place of idle ones
	MaxPerAddress    int            // connections of one client address at once, 0 is no limit
	TrustedProxies   []netip.Prefix // addresses without that limit
	MaxHeaderBytes   int
	QueueConfig
}

// QueueConfig bounds the turns that wait for a place. It can be changed while the server runs.
type QueueConfig struct {
	MaxQueue     int           // turns that wait to begin, and as many that wait for an instance; 0 refuses what has no place
	QueueTimeout time.Duration // how long one may wait, all its waits together
	MaxPerTenant int           // turns of one tenant at once, waiting ones too; 0 is no limit
}

// TimeConfig bounds every wait.
type TimeConfig struct {
	PrefillTimeout      time.Duration
	HandoverBudget      time.Duration
	FirstByteTimeout    time.Duration
	IdleTimeout         time.Duration
	StoreTimeout        time.Duration
	ShutdownGrace       time.Duration
	ClientWriteTimeout  time.Duration
	ClientHeaderTimeout time.Duration
	ClientBodyTimeout   time.Duration
}

// proofFor returns the mode of proof for a model.
func (c *Config) proofFor(model string) ProofMode {
	if p, ok := c.ModelProofs[model]; ok {
		return p
	}
	return c.Proof
}
