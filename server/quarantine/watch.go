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

// remindEvery is how often the log mentions the quarantined instances.
const remindEvery = time.Minute

// leastExchange is how long an exchange with other replicas may take at least. No turn waits for it, and a server that begins is slow.
const leastExchange = time.Second

// Shared is what replicas share of engines: marks, under names that are alike on all of them, and the epoch. An error costs a delay: the
// caller tries again within a second.
type Shared interface {
	// Mark publishes a value under a name.
	Mark(ctx context.Context, name, value string) error
	// Marks returns the values that were published last, by name.
	Marks(ctx context.Context, names []string) (map[string]string, error)
	// Epoch returns the highest epoch that an answer has shown, whatever was asked.
	Epoch() int64
	// ShareEpoch raises the shared epoch to own if it is lower, and otherwise by one if risen.
	ShareEpoch(ctx context.Context, own int64, risen bool) error
}

// WatchConfig is what a watch works with.
type WatchConfig struct {
	Fleet        *fleet.Fleet
	Epoch        *Epoch
	GiveUpOlder  func(ctx context.Context, epoch int64) // gives up this replica's tickets of other epochs, and has their blocks released
	StoreTimeout time.Duration                          // bounds what is told to other replicas
	Background   func(what, id string, work func())     // runs work in the background
	TellDrain    func(sentence string)                  // is told when an instance is drained or taken back at all replicas
}

// Watch shares quarantines of prefill, drains and the epoch with other replicas, gives up the tickets of earlier epochs, and mentions quarantined
// instances in the log again and again. Only one goroutine uses it, but for ShareDrain.
type Watch struct {
	WatchConfig
	Now      func() time.Time // the clock of the reminders
	reminded time.Time        // when the log last mentioned the quarantined engines, or none was quarantined
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

// Compare is one round. The first is made before the first turn.
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

// sweep gives up this replica's tickets of earlier epochs. No replica would use them, but decode's blocks would stay pinned. It works in the
// background, because there may be many tickets.
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

// exchange shares the epoch, and only then takes over the quarantines of other replicas for the incarnations that are alive and tells the
// replicas those that they don't know: who hears of a quarantine knows of the rise.
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

// sharedName names an incarnation as all replicas do, however they spell its host: by its start, its rank, because ranks share an address
// and a start but each has its own prefix cache, and what of its address is no name. Starts alone are told in hundredths of a second, in
// which two engines may begin.
func sharedName(incarnation *fleet.Incarnation) string {
	engine := incarnation.Engine()
	name := incarnation.ID() + " " + behindHost(engine.BaseURL)
	if engine.Ranked {
		name += "@" + strconv.Itoa(engine.Rank)
	}
	return name
}

// behindHost returns the port and the path of a URL.
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

// Of an instance that operators drain or take back, the last decision holds on all replicas. Each publishes its own where replicas share an
// older one or none, and takes over a later one: so a drain outlives the replica at which it began, and an outage of Redis.

// drainMark names what operators decide about an instance as all replicas do that name the instance alike, as for tickets.
func drainMark(engine *fleet.Engine) string {
	return "drain " + engine.Role.String() + " " + engine.Name
}

// mark returns a decision as replicas share it, and readDrain reads it; what can't be read is none.
func mark(d health.Drain) string { return fmt.Sprintf("%d %t", d.At, d.On) }

func readDrain(mark string) (d health.Drain) {
	if _, err := fmt.Sscanf(mark, "%d %t", &d.At, &d.On); err != nil {
		return health.Drain{}
	}
	return d
}

// drain takes over what other replicas' operators have decided about an instance since, or tells the replicas what they don't know.
func (w *Watch) drain(ctx context.Context, engine *fleet.Engine, shared health.Drain) {
	switch own := engine.Health.Drain(); {
	case own.After(shared):
		w.ShareDrain(ctx, engine)
	case shared.After(own):
		w.Fleet.TakeOver(engine, shared)
		if own.On == shared.On {
			return
		}
		w.Epoch.logger.Info("instance drained or taken back by an operator of all replicas", "role", engine.Role, "name", engine.Name, "draining", shared.On)
		sentence := "An operator of all replicas takes %s %s back: it gets turns again."
		if shared.On {
			sentence = "An operator of all replicas drains %s %s: it gets no new turns, and its open turns end as usual."
		}
		w.TellDrain(fmt.Sprintf(sentence, engine.Role, engine.Name))
	}
}

// ShareDrain tells other replicas what an operator has decided about an instance, and reports whether they share it. Without that the next
// round tries again.
func (w *Watch) ShareDrain(ctx context.Context, engine *fleet.Engine) bool {
	return w.Epoch.shared != nil && w.share(ctx, drainMark(engine), mark(engine.Health.Drain()))
}
