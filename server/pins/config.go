package pins

import (
	"context"
	"log/slog"
	"time"

	"carryover/convcache"
	"carryover/server/quarantine"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// ReleaseConfig configures how the blocks of unused tickets are freed.
type ReleaseConfig struct {
	Release        bool // free the blocks before decode's own time limit does
	ReleaseBacklog int  // how many unused tickets of a decode instance may wait for a turn's leg; beyond that, all are released at once
	// PinnedShare is the share of a decode instance's KV cache, 0 to 1, that tickets may pin. Beyond it, the oldest are released.
	PinnedShare float64
}

// HandBackMode says when tickets are handed back to prefill.
type HandBackMode string

// The modes of hand-back.
const (
	HandBackIdle HandBackMode = "idle" // when no turn has used the ticket for a while
	HandBackNow  HandBackMode = "now"  // at the end of each turn
	HandBackOff  HandBackMode = "off"  // never; the zero value too
)

// HandBackConfig configures when tickets are handed back: prefill reads the KV into its own prefix cache, and decode frees the blocks.
type HandBackConfig struct {
	HandBack       HandBackMode
	HandBackAfter  time.Duration // how long a ticket waits for a turn, with HandBackIdle
	HandBackAuto   bool          // learn the wait and what follows it (package continuation); HandBackAfter holds until enough is known
	HandBackMemory int64         // bytes that the ids of tickets may take
}

// Config configures Pins.
type Config struct {
	ReleaseConfig
	HandBackConfig
	TTL          time.Duration // longest life of a ticket
	TrialTimeout time.Duration // how long a leg with a ticket may take beyond a usual prefill
	Logger       *slog.Logger
}

// Shared is what replicas share of pinned blocks.
type Shared interface {
	// SharePinned tells other replicas how many tokens this one pins on an incarnation of decode. It returns the tokens that each other replica has
	// reported within convcache.PinnedLife. An error costs a delay: the caller tries again within a second.
	SharePinned(ctx context.Context, incarnation string, tokens int) (others []int, err error)
}

// Deps is what Pins works with. All fields but Shared are required.
type Deps struct {
	Fleet     *fleet.Fleet
	Store     convcache.Store
	Legs      upstream.Legs
	Connector upstream.Connector
	Epoch     *quarantine.Watch
	Shared    Shared // nil without Redis
	// Background runs work that belongs to no turn; what and id name it in the log if it panics.
	Background func(what, id string, work func())
}
