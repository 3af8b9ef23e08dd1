package turn

import (
	"log/slog"
	"time"

	"carryover/server/admission"
	"carryover/server/apierror"
	"carryover/server/background"
	"carryover/server/pick"
	"carryover/server/pins"
	"carryover/server/quarantine"
	"carryover/server/record"
	"carryover/server/request"
	"carryover/server/reuse"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// PrefillFailure says how a turn goes on after its prefill leg has failed.
type PrefillFailure string

const (
	// PrefillRetryOther tries another prefill instance, then decode alone, for a bounded number of turns at a time.
	PrefillRetryOther PrefillFailure = "retry_other"
	// PrefillDecodeOnly goes to decode alone immediately, for a bounded number of turns at a time.
	PrefillDecodeOnly PrefillFailure = "decode_only"
	// PrefillError gives the client the error.
	PrefillError PrefillFailure = "error"
)

// RoutingConfig decides between prefill with decode and decode alone. It can be changed while the server runs.
type RoutingConfig struct {
	// DisaggThreshold sends turns of fewer uncached prompt tokens to decode alone; 0 sends none.
	DisaggThreshold int
	PrefillFailure  PrefillFailure // PrefillRetryOther if empty
}

// LegConfig bounds every wait of a turn for engines and for its client.
type LegConfig struct {
	PrefillTimeout     time.Duration
	HandoverBudget     time.Duration
	FirstByteTimeout   time.Duration // of a stream
	AnswerTimeout      time.Duration // of an answer that comes whole
	IdleTimeout        time.Duration
	FirstEvent         time.Duration // how long decode's first event waits for the next one, which may say that the KV can't be loaded; 0 is for ever
	Heartbeat          time.Duration // how often a client hears something until its stream begins; 0 is never
	ClientWriteTimeout time.Duration
}

// begins returns how long decode's answer may take to begin. A whole answer begins when decode has finished it.
func (c *LegConfig) begins(stream bool) time.Duration {
	if stream {
		return c.FirstByteTimeout
	}
	return c.AnswerTimeout
}

// Config configures how turns run.
type Config struct {
	LegConfig
	ReuseTrialTimeout time.Duration // how long a leg with a ticket may take beyond a usual prefill
	Logger            *slog.Logger
}

// Deps is what turns run with. All fields but Sample are required.
type Deps struct {
	Fleet      *fleet.Fleet
	Legs       upstream.Legs
	Connector  upstream.Connector
	Picker     *pick.Picker
	Pins       *pins.Pins
	Epoch      *quarantine.Watch
	Background *background.Group
	Ratios     *request.Ratios
	Accepted   *request.Accepted
	Tickets    *reuse.Tickets
	Requests   *request.Reader
	Slots      *admission.Slots
	Names      request.ClientNames
	Errors     *apierror.Mapper
	Observers  []record.Observer
	Sample     record.Sample // decides which turns have spans; nil if turns are not traced
}
