package quarantine

import (
	"context"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"carryover/convcache"
	"carryover/server/proof"
	"carryover/upstream/fleet"
)

// startMargin is how much later than the epoch an engine must have been started, by its own clock, to count as started since.
const startMargin = time.Minute

// Epoch is the epoch of the fleet: the moment at which an incarnation of prefill was last caught computing other ids than it was sent, in
// milliseconds since 1970, 0 if none was. It never falls. It is safe for concurrent use.
type Epoch struct {
	secret convcache.Secret
	shared Shared
	logger *slog.Logger
	tell   func(sentence string)

	own    atomic.Int64
	untold atomic.Bool   // other replicas were not told of the last rise here
	risen  chan struct{} // holds at most one value, which says that the epoch has risen here
	caught atomic.Uint64
}

// NewEpoch returns the epoch of a fleet. shared is nil without Redis. tell is told of a quarantine as one sentence; nil for nobody.
func NewEpoch(secret convcache.Secret, shared Shared, logger *slog.Logger, tell func(sentence string)) *Epoch {
	if tell == nil {
		tell = func(string) {}
	}
	return &Epoch{secret: secret, shared: shared, logger: logger, tell: tell, risen: make(chan struct{}, 1)}
}

// Now returns the epoch, as far as this replica knows.
func (e *Epoch) Now() int64 {
	if e.shared == nil {
		return e.own.Load()
	}
	return max(e.own.Load(), e.shared.Epoch())
}

// Salt returns the text to put in front of the cache_salt of legs that are sent to these engines in an epoch, "" for none: all of them were
// started since it began. A nil incarnation is no engine; one that is not known was not.
func (e *Epoch) Salt(epoch int64, engines ...*fleet.Incarnation) string {
	if epoch == 0 {
		return ""
	}
	for _, engine := range engines {
		if engine != nil && !startedSince(engine.ID(), epoch) {
			return e.secret.EpochSalt(epoch)
		}
	}
	return ""
}

// startedSince reports whether an incarnation with that id, the moment of its start in seconds since 1970, was certainly started after an
// epoch had begun.
func startedSince(incarnation string, epoch int64) bool {
	started, err := strconv.ParseFloat(incarnation, 64)
	return err == nil && started*1e3 > float64(epoch+startMargin.Milliseconds())
}

// Caught records that the answer to a leg that was sent in an epoch repeated other ids than the leg sent: the incarnation of prefill is
// quarantined until it is restarted, and the epoch rises, unless it has since. turn names the turn in the log.
func (e *Epoch) Caught(prefill *fleet.Incarnation, epoch int64, turn string) {
	e.rise(epoch)
	prefill.Quarantine()
	e.logger.Error("prefill is quarantined until it is restarted", "turn", turn, "prefill", prefill.Engine().Name,
		"incarnation", prefill.ID(), "error", proof.ErrIDs)
	e.tell("Prefill " + prefill.Engine().Name + " is quarantined until it is restarted: it computed other ids than it was sent.")
	e.caught.Add(1)
}

// Count returns how many answers Caught was told of.
func (e *Epoch) Count() uint64 { return e.caught.Load() }

// rise ends an epoch. What is of an earlier one is given up already.
func (e *Epoch) rise(epoch int64) {
	own := e.own.Load()
	if e.Now() != epoch || !e.own.CompareAndSwap(own, max(time.Now().UnixMilli(), epoch+1)) {
		return
	}
	e.untold.Store(true)
	select {
	case e.risen <- struct{}{}:
	default: // the watch will be woken already
	}
}

// share tells the other replicas of a rise here, learns of those elsewhere, and reports whether they have answered.
func (e *Epoch) share(ctx context.Context) bool {
	risen := e.untold.Swap(false)
	err := e.shared.ShareEpoch(ctx, e.Now(), risen)
	if err == nil {
		return true
	}
	if risen {
		e.untold.Store(true)
	}
	e.logger.Debug("the epoch is not shared", "error", err)
	return false
}
