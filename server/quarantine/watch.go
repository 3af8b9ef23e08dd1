package quarantine

import (
	"context"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"carryover/server/storetime"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// Every is how often quarantines are exchanged with other replicas.
const Every = time.Second

// remindEvery is how often the log mentions a quarantined instance.
const remindEvery = time.Minute

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

// Tickets are the tickets of this replica.
type Tickets interface {
	// GiveUpOlder gives up the tickets of other epochs, and has their blocks released.
	GiveUpOlder(ctx context.Context, epoch int64)
}

// WatchConfig is what a watch works with.
type WatchConfig struct {
	Fleet        *fleet.Fleet
	Epoch        *Epoch
	Tickets      Tickets
	StoreTimeout time.Duration                      // bounds an exchange with other replicas
	Background   func(what, id string, work func()) // runs work in the background
	TellDrain    func(sentence string)              // is told when an instance is drained or taken back at all replicas
}

// Watch shares quarantines of prefill, drains and the epoch with other replicas, gives up the tickets of earlier epochs, and mentions quarantined
// instances in the log again and again. Only one goroutine uses it, but for ShareDrain.
type Watch struct {
	WatchConfig
	Now      func() time.Time            // the clock of the reminders
	logged   map[*fleet.Engine]time.Time // when the log last mentioned each quarantined engine; at first, when it was quarantined
	swept    int64                       // the epoch whose older tickets were given up
	sweeping atomic.Bool
}

// NewWatch returns a watch.
func NewWatch(cfg WatchConfig) *Watch {
	if cfg.TellDrain == nil {
		cfg.TellDrain = func(string) {}
	}
	return &Watch{WatchConfig: cfg, Now: time.Now, logged: map[*fleet.Engine]time.Time{}}
}

// Risen receives a value when the epoch has risen in this replica.
func (w *Watch) Risen() <-chan struct{} { return w.Epoch.risen }

// Begin is the first round, before the first turn, which has time for a server that is slow to begin with.
func (w *Watch) Begin(ctx context.Context) { w.compare(ctx, max(w.StoreTimeout, time.Second)) }

// Compare is one round.
func (w *Watch) Compare(ctx context.Context) { w.compare(ctx, w.StoreTimeout) }

func (w *Watch) compare(ctx context.Context, within time.Duration) {
	engines := w.Fleet.Engines(upstream.RolePrefill)
	maps.DeleteFunc(w.logged, func(e *fleet.Engine, _ time.Time) bool { return !e.Quarantined() || !slices.Contains(engines, e) })
	for _, engine := range engines {
		last, found := w.logged[engine]
		switch {
		case !engine.Quarantined():
		case !found:
			w.logged[engine] = w.Now()
		case w.Now().Sub(last) >= remindEvery:
			w.logged[engine] = w.Now()
			w.Epoch.logger.Warn("prefill is quarantined; restart it, its prefix cache is in doubt", "prefill", engine.Name)
		}
	}
	if w.Epoch.shared != nil {
		w.exchange(ctx, within, engines)
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
		w.Tickets.GiveUpOlder(ctx, epoch)
	})
}

// Sweeping reports whether tickets are being given up now.
func (w *Watch) Sweeping() bool { return w.sweeping.Load() }

// Remembered returns how many quarantined engines the watch will mention again.
func (w *Watch) Remembered() int { return len(w.logged) }

// exchange shares the epoch, and only then takes over the quarantines of other replicas for the incarnations that are alive and tells the
// replicas those that they don't know: who hears of a quarantine knows of the rise.
func (w *Watch) exchange(ctx context.Context, within time.Duration, engines []*fleet.Engine) {
	var alive []*fleet.Incarnation
	var names []string
	for _, engine := range engines {
		if incarnation := engine.Fresh(); incarnation.Known() {
			alive, names = append(alive, incarnation), append(names, sharedName(incarnation))
		}
	}
	bounded, cancel := storetime.Limit(ctx, within)
	told := w.Epoch.share(bounded)
	cancel()
	if !told {
		return // the next round comes soon
	}
	all := slices.Concat(w.Fleet.Engines(upstream.RoleDecode), engines)
	asked := names
	for _, engine := range all {
		asked = append(asked, drainMark(engine))
	}
	bounded, cancel = storetime.Limit(ctx, within)
	defer cancel()
	marks, err := w.Epoch.shared.Marks(bounded, asked)
	if err != nil {
		return
	}
	w.drains(ctx, all, marks)
	for i, incarnation := range alive {
		_, shared := marks[names[i]]
		switch local := incarnation.Quarantined(); {
		case shared && !local:
			incarnation.Quarantine()
			w.Epoch.logger.Error("prefill is quarantined until it is restarted: another replica has found that it does not compute the ids that it is sent",
				"prefill", incarnation.Engine().Name, "incarnation", incarnation.ID())
			w.Epoch.tell("Prefill " + incarnation.Engine().Name + " is quarantined until it is restarted: another replica found that it computes other ids than it is sent.")
		case local && !shared:
			w.share(ctx, names[i], "")
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
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
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
