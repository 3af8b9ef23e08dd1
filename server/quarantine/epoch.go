// Package quarantine keeps turns away from incarnations of prefill that compute other ids than they are sent, and from all KV that may
// have come through their caches.
//
// An incarnation of prefill that computes other ids than it was sent stores wrong KV in its prefix cache. Its answer shows this, because
// it repeats the ids. By then other engines may have read that cache: decode by hand-overs, other incarnations of prefill by tickets and
// hand-backs of decode's KV. Which of them have, and since when, nobody has to know. The incarnation is quarantined until it is
// restarted, and the epoch of the fleet rises (epoch.go):
//
//   - A ticket, or a note of a hand-back, has the epoch of the legs of its turn. That of another epoch is a miss, and the blocks of a
//     ticket are released.
//   - The legs of a turn have the cache_salt of their epoch, the same on both, unless both engines were started since the epoch began. So
//     no engine finds in its prefix cache what it had there before.
//   - A turn whose epoch has ended before decode got its hand-over is run again. If decode has the hand-over, the turn leaves no ticket.
//
// A rise costs every conversation its ticket and every engine its prefix cache, once. No stock engine has shown such a fault.
//
// # Replicas
//
// The epoch is the moment of the rise, so that all replicas agree on which engines were started since. It is one number in Redis, which
// each look-up and each take reads: a replica that uses a ticket knows of every rise before. Each replica compares it with its own, and
// the quarantined incarnations, once a second (watch.go), and at once after a rise of its own. While Redis does not answer, a replica
// knows of its own findings only. Without Redis the epoch is in this process. In the same round replicas share which instances operators drain
// (watch.go).
//
// This package can't undo answers from before the id echo, keep other users of an engine from its cache, or know what a process without
// Redis saw before its own restart.
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
