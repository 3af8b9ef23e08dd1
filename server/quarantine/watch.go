package quarantine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"carryover/server/storetime"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/health"
)

// Every is how often quarantines are exchanged with other replicas.
const Every = time.Second

// RemindEvery is how often the log mentions quarantined instances.
const RemindEvery = time.Minute

// leastExchange is the least time limit of an exchange with other replicas. No turn waits for it, and a server that begins is slow.
const leastExchange = time.Second

// Shared is what replicas share about engines: the epoch, and marks under names that are alike on all replicas. An error costs a delay: the caller
// tries again within a second.
type Shared interface {
	// Mark publishes a value under a name.
	Mark(ctx context.Context, name, value string) error
	// Marks returns the last published values by name.
	Marks(ctx context.Context, names []string) (map[string]string, error)
	// Epoch returns the highest epoch that any answer of the store has shown.
	Epoch() int64
	// ShareEpoch raises the shared epoch to own if it is lower, and otherwise by one if risen.
	ShareEpoch(ctx context.Context, own int64, risen bool) error
}

// WatchConfig is what a Watch works with.
type WatchConfig struct {
	Fleet        *fleet.Fleet
	Epoch        *Epoch
	GiveUpOlder  func(ctx context.Context, epoch int64) // gives up this replica's tickets of other epochs, and releases their blocks
	StoreTimeout time.Duration                          // bounds what an operator's request waits for other replicas
	Background   func(what, id string, work func())     // runs work in the background
	TellDrain    func(sentence string)                  // gets a sentence when an instance is drained or taken back on all replicas; may be nil
}

// Watch shares quarantines, drains and the epoch with other replicas. It also gives up the tickets of earlier epochs, and reminds of quarantined
// instances in the log. Only one goroutine uses Compare.
type Watch struct {
	WatchConfig
	swept int64 // the epoch whose older tickets are given up
}

// NewWatch returns a watch.
func NewWatch(cfg WatchConfig) *Watch {
	if cfg.TellDrain == nil {
		cfg.TellDrain = func(string) {}
	}
	return &Watch{WatchConfig: cfg}
}

// Risen receives a value when the epoch has risen in this replica.
func (w *Watch) Risen() <-chan struct{} { return w.Epoch.risen }

// Remind mentions quarantined instances in the log.
func (w *Watch) Remind(context.Context) {
	for _, engine := range w.Fleet.Engines(upstream.RolePrefill) {
		if engine.Quarantined() {
			w.Epoch.logger.Warn("prefill is quarantined; restart it, its prefix cache is in doubt", "prefill", engine.Name)
		}
	}
}

// Compare is one round. The first one runs before the first turn. In another epoch it gives up this replica's older tickets in the background,
// because there may be many. No replica would use them, but decode's blocks would stay pinned.
func (w *Watch) Compare(ctx context.Context) {
	if w.Epoch.shared != nil {
		w.exchange(ctx)
	}
	epoch := w.Epoch.Now()
	if epoch == w.swept {
		return
	}
	w.swept = epoch
	w.Epoch.logger.Warn("a prefill has computed other ids than it was sent: tickets from before are given up, and legs have a cache_salt until their engines are restarted")
	w.Background("task", "quarantine", func() { w.GiveUpOlder(ctx, w.Epoch.Now()) })
}

// exchange shares first the epoch and then quarantines and drains, so whoever hears of a quarantine knows of the rise. It takes over other replicas'
// quarantines of living incarnations, and publishes those that they don't know.
func (w *Watch) exchange(ctx context.Context) {
	bounded, cancel := storetime.Limit(ctx, max(w.StoreTimeout, leastExchange))
	defer cancel()
	if !w.Epoch.share(bounded) {
		return // the next round comes soon
	}
	engines := slices.Concat(w.Fleet.Engines(upstream.RoleDecode), w.Fleet.Engines(upstream.RolePrefill))
	var alive []*fleet.Incarnation
	var asked []string
	for _, engine := range engines {
		asked = append(asked, drainMark(engine))
		if incarnation := engine.Fresh(); engine.Role == upstream.RolePrefill && incarnation.Known() {
			alive, asked = append(alive, incarnation), append(asked, quarantineMark(incarnation))
		}
	}
	marks, err := w.Epoch.shared.Marks(bounded, asked)
	if err != nil {
		return
	}
	for _, engine := range engines {
		w.drain(bounded, engine, marks[drainMark(engine)])
	}
	for _, incarnation := range alive {
		name := quarantineMark(incarnation)
		_, shared := marks[name]
		switch local := incarnation.Quarantined(); {
		case shared && !local:
			incarnation.Quarantine()
			prefill := incarnation.Engine().Name
			w.Epoch.logger.Error("prefill is quarantined until it is restarted: another replica has found that it does not compute the ids that it is sent",
				"prefill", prefill, "incarnation", incarnation.ID())
			w.Epoch.tell("Prefill " + prefill + " is quarantined until it is restarted: another replica found that it computes other ids than it is sent.")
		case local && !shared:
			w.share(bounded, name, "")
		}
	}
}

// quarantineMark names an incarnation. Starts are in hundredths of a second, so two engines may have the same. Replicas share a mark if they name
// the instance alike, as for tickets.
func quarantineMark(incarnation *fleet.Incarnation) string {
	return incarnation.ID() + " " + incarnation.Engine().Name
}

// share publishes a mark, and reports whether it is stored.
func (w *Watch) share(ctx context.Context, name, value string) bool {
	err := w.Epoch.shared.Mark(ctx, name, value)
	if err != nil {
		w.Epoch.logger.Debug("a mark of an engine is not shared", "error", err)
	}
	return err == nil
}

// drainForm has the moment of a decision, and whether the instance is drained.
const drainForm = "%d %t"

// The last decision of an operator to drain an instance, or to take it back, holds on all replicas. Each replica publishes its own decision if the
// shared one is older or missing, and takes over a later one. So a drain outlives the replica where it began, and an outage of Redis.

// drainMark names an operator's decision about an instance.
func drainMark(engine *fleet.Engine) string {
	return "drain " + engine.Role.String() + " " + engine.Name
}

// drain takes over other replicas' later decision about an instance, or publishes this replica's later one. mark is the shared decision, "" for
// none; what can't be read is older than any decision.
func (w *Watch) drain(ctx context.Context, engine *fleet.Engine, mark string) {
	var shared health.Drain
	_, _ = fmt.Sscanf(mark, drainForm, &shared.At, &shared.On)
	switch own := engine.Health.Drain(); {
	case own.After(shared):
		w.shareDrain(ctx, engine)
	case shared.After(own):
		w.Fleet.TakeOver(engine, shared)
		if own.On == shared.On {
			return
		}
		w.Epoch.logger.Info("an operator has drained an instance, or taken it back, on all replicas", "role", engine.Role, "name", engine.Name, "draining", shared.On)
		sentence := "An operator takes %s %s back on all replicas: it gets turns again."
		if shared.On {
			sentence = "An operator drains %s %s on all replicas: it gets no new turns, and its open turns end as usual."
		}
		w.TellDrain(fmt.Sprintf(sentence, engine.Role, engine.Name))
	}
}

// ShareDrain tells other replicas an operator's decision about an instance, and reports whether they share it. If not, the next round tries again.
func (w *Watch) ShareDrain(ctx context.Context, engine *fleet.Engine) bool {
	bounded, cancel := storetime.Limit(ctx, w.StoreTimeout)
	defer cancel()
	return w.Epoch.shared != nil && w.shareDrain(bounded, engine)
}

func (w *Watch) shareDrain(ctx context.Context, engine *fleet.Engine) bool {
	decided := engine.Health.Drain()
	return w.share(ctx, drainMark(engine), fmt.Sprintf(drainForm, decided.At, decided.On))
}
