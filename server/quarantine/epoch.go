// Package quarantine keeps turns away from incarnations of prefill that compute other ids than they are sent. It also keeps them away from all KV
// that may have come through the caches of such incarnations.
//
// Such an incarnation stores wrong KV in its prefix cache. Its answer shows this, because it repeats the ids. By then other engines may have read
// that cache: decode by hand-overs, other incarnations of prefill by tickets and hand-backs. Nobody has to know which engines have, or since when.
// The incarnation is quarantined until it is restarted, and the epoch of the fleet rises (epoch.go):
//
//   - A ticket or note has the epoch of its turn's legs. In another epoch it is a miss. Stored tickets of older epochs are
//     given up when the epoch rises, and their blocks are released.
//   - Both legs of a turn have the cache_salt of their epoch, unless both engines were started after the epoch began. So no engine finds in its prefix
//     cache what it stored before.
//   - If the epoch rises before decode gets the hand-over, the turn runs again. If decode already has it, the turn leaves no ticket.
//
// A rise costs every conversation its ticket and every engine its prefix cache, once. No stock engine has shown such a fault.
//
// # Replicas
//
// The epoch is the moment of the rise, so all replicas agree on which engines were started since. It is one number in Redis, which each look-up and
// each take reads: a replica that uses a ticket knows of every earlier rise. Once a second, and at once after a rise of its own, each replica
// compares it with its own epoch, and exchanges quarantines and drains (watch.go). While Redis does not answer, a replica knows only its own
// findings. Without Redis the epoch lives in this process.
//
// This package can't undo answers from before the id echo, or keep other users of an engine from its cache. It does not know what a process without
// Redis saw before its own restart.
package quarantine

import (
	"strconv"
	"time"

	"carryover/server/events"
	"carryover/server/proof"
	"carryover/upstream/fleet"
)

// startMargin is how much later than the epoch, by its own clock, an engine must have been started to count as started since.
const startMargin = time.Minute

// Now returns the epoch, as far as this replica knows: the moment of the fleet's last quarantine, in milliseconds since 1970, 0 for none. It never
// falls.
func (w *Watch) Now() int64 {
	if w.cfg.Shared == nil {
		return w.own.Load()
	}
	return max(w.own.Load(), w.cfg.Shared.Epoch())
}

// Salt returns the prefix for the cache_salt of legs to these engines in an epoch, "" if all of them were started after it began. A nil incarnation
// is no engine; an unknown one counts as older.
func (w *Watch) Salt(epoch int64, engines ...*fleet.Incarnation) string {
	if epoch == 0 {
		return ""
	}
	for _, engine := range engines {
		if engine != nil && !startedSince(engine.ID(), epoch) {
			return w.cfg.Secret.EpochSalt(epoch)
		}
	}
	return ""
}

// startedSince reports whether an incarnation was certainly started after an epoch had begun. Its id is its start in seconds since 1970.
func startedSince(incarnation string, epoch int64) bool {
	started, err := strconv.ParseFloat(incarnation, 64)
	return err == nil && started*1e3 > float64(epoch+startMargin.Milliseconds())
}

// Caught quarantines an incarnation of prefill until it is restarted: its answer repeated other ids than its leg sent. The epoch rises, unless it has
// risen since the leg's epoch. turn names the turn in the log.
func (w *Watch) Caught(prefill *fleet.Incarnation, epoch int64, turn string) {
	own := w.own.Load()
	if w.Now() == epoch && w.own.CompareAndSwap(own, max(time.Now().UnixMilli(), epoch+1)) {
		select {
		case w.Risen <- struct{}{}:
		default: // the watch will be woken already
		}
	}
	w.quarantine(prefill, turn, proof.ErrIDs, "it computed other ids than it was sent.")
	w.Quarantines.Add(1)
}

// quarantine quarantines an incarnation. The log gets the cause, and operators get it as the end of a sentence.
func (w *Watch) quarantine(prefill *fleet.Incarnation, turn string, cause error, end string) {
	prefill.Quarantine()
	name := prefill.Engine().Name
	w.cfg.Logger.Error("prefill is quarantined until it is restarted", "turn", turn, "prefill", name, "incarnation", prefill.ID(), "error", cause)
	w.cfg.Tell(events.Quarantine, "Prefill "+name+" is quarantined until it is restarted: "+end)
}
