package server

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"time"

	"carryover/server/proof"
	"carryover/server/storetime"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// quarantineEvery is how often quarantines are exchanged with other replicas, remindEvery how often the log mentions a quarantined instance.
const (
	quarantineEvery = time.Second
	remindEvery     = time.Minute
)

// quarantine records that an incarnation of prefill computed other ids than it was sent. Other replicas learn of it within a second, or when
// Redis answers again.
func quarantine(logger *slog.Logger, prefill *fleet.Incarnation, turn string) {
	prefill.Quarantine()
	logger.Error("prefill is quarantined until it is restarted", "turn", turn, "prefill", prefill.Engine().Name,
		"incarnation", prefill.ID(), "error", proof.ErrIDs)
}

// quarantineWatch shares quarantines of prefill with other replicas, and mentions them in the log again and again.
type quarantineWatch struct {
	cfg    *Config
	fleet  *fleet.Fleet
	shared SharedQuarantines           // nil without Redis
	logged map[*fleet.Engine]time.Time // when the log last mentioned each quarantined engine; at first, when it was quarantined
}

// compare is one round.
func (b *quarantineWatch) compare(ctx context.Context) {
	engines := b.fleet.Engines(upstream.RolePrefill)
	maps.DeleteFunc(b.logged, func(e *fleet.Engine, _ time.Time) bool { return !e.Quarantined() || !slices.Contains(engines, e) })
	for _, engine := range engines {
		last, found := b.logged[engine]
		switch {
		case !engine.Quarantined():
		case !found:
			b.logged[engine] = time.Now()
		case time.Since(last) >= remindEvery:
			b.logged[engine] = time.Now()
			b.cfg.Logger.Warn("prefill is quarantined; restart it, its prefix cache is in doubt", "prefill", engine.Name)
		}
	}
	if b.shared != nil {
		b.exchange(ctx, engines)
	}
}

// exchange takes over the quarantines of other replicas for the incarnations that are alive, and tells the replicas those that they don't know.
func (b *quarantineWatch) exchange(ctx context.Context, engines []*fleet.Engine) {
	var alive []*fleet.Incarnation
	var names []string
	for _, engine := range engines {
		if incarnation := engine.Fresh(); incarnation.Known() {
			alive, names = append(alive, incarnation), append(names, sharedName(incarnation))
		}
	}
	bounded, cancel := storetime.Limit(ctx, b.cfg.StoreTimeout)
	defer cancel()
	shared, err := b.shared.QuarantinedIncarnations(bounded, names)
	if err != nil || len(shared) != len(names) {
		return // the next round comes soon
	}
	for i, incarnation := range alive {
		switch local := incarnation.Quarantined(); {
		case shared[i] && !local:
			incarnation.Quarantine()
			b.cfg.Logger.Error("prefill is quarantined until it is restarted: another replica has found that it does not compute the ids that it is sent",
				"prefill", incarnation.Engine().Name, "incarnation", incarnation.ID())
		case local && !shared[i]:
			b.share(ctx, names[i])
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
func (b *quarantineWatch) share(ctx context.Context, incarnation string) {
	bounded, cancel := storetime.Limit(ctx, b.cfg.StoreTimeout)
	defer cancel()
	if err := b.shared.QuarantineIncarnation(bounded, incarnation); err != nil {
		b.cfg.Logger.Debug("bar is not shared", "error", err)
	}
}
