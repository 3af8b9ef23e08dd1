package quarantine

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"time"

	"carryover/server/storetime"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// Every is how often quarantines are exchanged with other replicas.
const Every = time.Second

// remindEvery is how often the log mentions a quarantined instance.
const remindEvery = time.Minute

// Shared is what replicas share of quarantines. Without Redis its fields are nil.
type Shared struct {
	Incarnations SharedIncarnations
	Lineages     SharedLineages
}

// SharedIncarnations shares with other replicas which incarnations of prefill instances are quarantined. An incarnation is named by URL,
// data-parallel rank and process_start_time_seconds. An error costs a delay: the caller tries again within a second.
type SharedIncarnations interface {
	QuarantineIncarnation(ctx context.Context, incarnation string) error
	// QuarantinedIncarnations reports for each incarnation whether a replica has quarantined it.
	QuarantinedIncarnations(ctx context.Context, incarnations []string) ([]bool, error)
}

// WatchConfig is what both watches work with.
type WatchConfig struct {
	Fleet        *fleet.Fleet
	Logger       *slog.Logger
	StoreTimeout time.Duration         // bounds an exchange with other replicas
	Tell         func(sentence string) // is told of a quarantine; nil for nobody
}

// tellShared tells operators of a quarantine that another replica has begun.
func (c *WatchConfig) tellShared(prefill *fleet.Engine) {
	c.tell("Prefill " + prefill.Name + " is quarantined until it is restarted: another replica found that it computes other ids than it is sent.")
}

func (c *WatchConfig) tell(sentence string) {
	if c.Tell != nil {
		c.Tell(sentence)
	}
}

// Watch shares quarantines of prefill with other replicas, and mentions them in the log again and again. Only one goroutine uses it.
type Watch struct {
	WatchConfig
	Now    func() time.Time            // the clock of the reminders
	shared SharedIncarnations          // nil without Redis
	logged map[*fleet.Engine]time.Time // when the log last mentioned each quarantined engine; at first, when it was quarantined
}

// NewWatch returns a watch; shared is nil without Redis.
func NewWatch(cfg WatchConfig, shared SharedIncarnations) *Watch {
	return &Watch{WatchConfig: cfg, Now: time.Now, shared: shared, logged: map[*fleet.Engine]time.Time{}}
}

// Compare is one round.
func (w *Watch) Compare(ctx context.Context) {
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
			w.Logger.Warn("prefill is quarantined; restart it, its prefix cache is in doubt", "prefill", engine.Name)
		}
	}
	if w.shared != nil {
		w.exchange(ctx, engines)
	}
}

// Remembered returns how many quarantined engines the watch will mention again.
func (w *Watch) Remembered() int { return len(w.logged) }

// exchange takes over the quarantines of other replicas for the incarnations that are alive, and tells the replicas those that they don't know.
func (w *Watch) exchange(ctx context.Context, engines []*fleet.Engine) {
	var alive []*fleet.Incarnation
	var names []string
	for _, engine := range engines {
		if incarnation := engine.Fresh(); incarnation.Known() {
			alive, names = append(alive, incarnation), append(names, sharedName(incarnation))
		}
	}
	bounded, cancel := storetime.Limit(ctx, w.StoreTimeout)
	defer cancel()
	shared, err := w.shared.QuarantinedIncarnations(bounded, names)
	if err != nil || len(shared) != len(names) {
		return // the next round comes soon
	}
	for i, incarnation := range alive {
		switch local := incarnation.Quarantined(); {
		case shared[i] && !local:
			incarnation.Quarantine()
			w.Logger.Error("prefill is quarantined until it is restarted: another replica has found that it does not compute the ids that it is sent",
				"prefill", incarnation.Engine().Name, "incarnation", incarnation.ID())
			w.tellShared(incarnation.Engine())
		case local && !shared[i]:
			w.share(ctx, names[i])
		}
	}
}

// sharedName returns an incarnation's name among replicas. It has the data-parallel rank, because ranks share an address and a start time but
// each has its own prefix cache.
func sharedName(incarnation *fleet.Incarnation) string {
	engine := incarnation.Engine()
	if engine.Ranked {
		return engine.BaseURL + "@" + strconv.Itoa(engine.Rank) + " " + incarnation.ID()
	}
	return engine.BaseURL + " " + incarnation.ID()
}

// share tells other replicas of a quarantine.
func (w *Watch) share(ctx context.Context, incarnation string) {
	bounded, cancel := storetime.Limit(ctx, w.StoreTimeout)
	defer cancel()
	if err := w.shared.QuarantineIncarnation(bounded, incarnation); err != nil {
		w.Logger.Debug("quarantine is not shared", "error", err)
	}
}
