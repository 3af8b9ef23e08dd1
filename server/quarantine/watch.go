package quarantine

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"carryover/server/storetime"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/health"
)

// Every is how often quarantines are exchanged with other replicas.
const Every = time.Second

const remindEvery = time.Minute

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
	StoreTimeout time.Duration                          // bounds each message to other replicas
	Background   func(what, id string, work func())     // runs work in the background
	TellDrain    func(sentence string)                  // gets a sentence when an instance is drained or taken back on all replicas; may be nil
}

// Watch shares quarantines, drains and the epoch with other replicas. It also gives up the tickets of earlier epochs, and reminds of quarantined
// instances in the log. Only one goroutine uses it, except for ShareDrain.
type Watch struct {
	WatchConfig
	Now      func() time.Time // the clock of the reminders
	reminded time.Time        // when the log last mentioned quarantined engines, or none was quarantined
	swept    int64            // the epoch whose older tickets were given up
	sweeping atomic.Bool
}

// NewWatch returns a watch.
func NewWatch(cfg WatchConfig) *Watch {
	if cfg.TellDrain == nil {
		cfg.TellDrain = func(string) {}
	}
	return &Watch{WatchConfig: cfg, Now: time.Now}
}

// Risen receives a value when the epoch has risen in this replica.
func (w *Watch) Risen() <-chan struct{} { return w.Epoch.risen }

// Compare is one round. The first one runs before the first turn.
func (w *Watch) Compare(ctx context.Context) {
	now, quarantined := w.Now(), false
	remind := now.Sub(w.reminded) >= remindEvery
	for _, engine := range w.Fleet.Engines(upstream.RolePrefill) {
		if !engine.Quarantined() {
			continue
		}
		if quarantined = true; remind {
			w.Epoch.logger.Warn("prefill is quarantined; restart it, its prefix cache is in doubt", "prefill", engine.Name)
		}
	}
	if remind || !quarantined {
		w.reminded = now
	}
	if w.Epoch.shared != nil {
		w.exchange(ctx)
	}
	w.sweep(ctx)
}

// sweep gives up this replica's tickets of earlier epochs, in the background, because there may be many. No replica would use them, but decode's
// blocks would stay pinned.
func (w *Watch) sweep(ctx context.Context) {
	epoch := w.Epoch.Now()
	if epoch == w.swept || !w.sweeping.CompareAndSwap(false, true) {
		return
	}
	w.swept = epoch
	w.Epoch.logger.Warn("a prefill has computed other ids than it was sent: tickets from before are given up, and legs have a cache_salt until their engines are restarted")
	w.Background("task", "quarantine", func() {
		defer w.sweeping.Store(false)
		w.GiveUpOlder(ctx, epoch)
	})
}

// Sweeping reports whether tickets are being given up now.
func (w *Watch) Sweeping() bool { return w.sweeping.Load() }

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
			alive, asked = append(alive, incarnation), append(asked, sharedName(incarnation))
		}
	}
	marks, err := w.Epoch.shared.Marks(bounded, asked)
	if err != nil {
		return
	}
	for _, engine := range engines {
		w.drain(ctx, engine, readDrain(marks[drainMark(engine)]))
	}
	for _, incarnation := range alive {
		name := sharedName(incarnation)
		_, shared := marks[name]
		switch local := incarnation.Quarantined(); {
		case shared && !local:
			incarnation.Quarantine()
			prefill := incarnation.Engine().Name
			w.Epoch.logger.Error("prefill is quarantined until it is restarted: another replica has found that it does not compute the ids that it is sent",
				"prefill", prefill, "incarnation", incarnation.ID())
			w.Epoch.tell("Prefill " + prefill + " is quarantined until it is restarted: another replica found that it computes other ids than it is sent.")
		case local && !shared:
			w.share(ctx, name, "")
		}
	}
}

// sharedName names an incarnation alike on all replicas, however they spell its host: by its start, the port and path of its address, and its rank.
// Ranks share an address and a start, but each has its own prefix cache. Starts are in hundredths of a second, and two engines may have the same.
func sharedName(incarnation *fleet.Incarnation) string {
	engine := incarnation.Engine()
	name := incarnation.ID() + " " + behindHost(engine.BaseURL)
	if engine.Ranked {
		name += "@" + strconv.Itoa(engine.Rank)
	}
	return name
}

func behindHost(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	return ":" + port + strings.TrimRight(u.Path, "/")
}

// share publishes a mark, and reports whether it is stored.
func (w *Watch) share(ctx context.Context, name, value string) bool {
	bounded, cancel := storetime.Limit(ctx, w.StoreTimeout)
	defer cancel()
	err := w.Epoch.shared.Mark(bounded, name, value)
	if err != nil {
		w.Epoch.logger.Debug("a mark of an engine is not shared", "error", err)
	}
	return err == nil
}

// The last decision of an operator to drain an instance, or to take it back, holds on all replicas. Each replica publishes its own decision if the
// shared one is older or missing, and takes over a later one. So a drain outlives the replica where it began, and an outage of Redis.

// drainMark returns the name of an operator's decision about an instance. Replicas share it if they name the instance alike, as for tickets.
func drainMark(engine *fleet.Engine) string {
	return "drain " + engine.Role.String() + " " + engine.Name
}

// mark formats a decision for the other replicas; readDrain parses it, and returns none if it can't.
func mark(d health.Drain) string { return fmt.Sprintf("%d %t", d.At, d.On) }

func readDrain(mark string) (d health.Drain) {
	if _, err := fmt.Sscanf(mark, "%d %t", &d.At, &d.On); err != nil {
		return health.Drain{}
	}
	return d
}

// drain takes over other replicas' later decision about an instance, or publishes this replica's later one.
func (w *Watch) drain(ctx context.Context, engine *fleet.Engine, shared health.Drain) {
	switch own := engine.Health.Drain(); {
	case own.After(shared):
		w.ShareDrain(ctx, engine)
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
	return w.Epoch.shared != nil && w.share(ctx, drainMark(engine), mark(engine.Health.Drain()))
}
