package server

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"carryover/server/proof"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// barEvery is how often bars are compared with those of other replicas, barAgain how often a barred instance is
// mentioned in the log.
const (
	barEvery = time.Second
	barAgain = time.Minute
)

// bar records that a start of prefill computed other ids than it was sent. Replicas hear of it within a second, or when
// Redis answers again.
func bar(logger *slog.Logger, prefill *fleet.Start, turn string) {
	prefill.Bar()
	logger.Error("prefill is barred until it is restarted", "turn", turn, "prefill", prefill.Engine().Name,
		"start", prefill.ID(), "error", proof.ErrIDs)
}

// barWatch shares bars with other replicas, and reminds of them.
type barWatch struct {
	cfg    *Config
	fleet  *fleet.Fleet
	shared SharedBars // nil without Redis
	beside *beside
	said   map[*fleet.Engine]time.Time // when each barred engine was mentioned last; first, when it was barred
}

// run goes on until ctx ends.
func (s *barWatch) run(ctx context.Context) {
	tick := time.NewTicker(barEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.compare(ctx)
	}
}

// compare is one round of run.
func (s *barWatch) compare(ctx context.Context) {
	defer s.beside.survive("task", "bars")
	engines := s.fleet.Engines(upstream.RolePrefill)
	maps.DeleteFunc(s.said, func(e *fleet.Engine, _ time.Time) bool { return !e.Barred() || !slices.Contains(engines, e) })
	for _, engine := range engines {
		last, found := s.said[engine]
		switch {
		case !engine.Barred():
		case !found:
			s.said[engine] = time.Now()
		case time.Since(last) >= barAgain:
			s.said[engine] = time.Now()
			s.cfg.Logger.Warn("prefill is barred; restart it, its prefix cache is in doubt", "prefill", engine.Name)
		}
	}
	if s.shared != nil {
		s.exchange(ctx, engines)
	}
}

// exchange takes over what other replicas have found about the starts that are alive, and tells them what they don't
// know.
func (s *barWatch) exchange(ctx context.Context, engines []*fleet.Engine) {
	var alive []*fleet.Start
	var names []string
	for _, engine := range engines {
		if start := engine.Now(); start.Known() {
			alive, names = append(alive, start), append(names, engine.BaseURL+" "+start.ID())
		}
	}
	bounded, cancel := storeContext(ctx, s.cfg)
	defer cancel()
	shared, err := s.shared.Barred(bounded, names)
	if err != nil || len(shared) != len(names) {
		return // the next round comes soon
	}
	for i, start := range alive {
		switch local := start.Barred(); {
		case shared[i] && !local:
			start.Bar()
			s.cfg.Logger.Error("prefill is barred until it is restarted: another replica has found that it does not compute the ids that it is sent",
				"prefill", start.Engine().Name, "start", start.ID())
		case local && !shared[i]:
			s.share(ctx, names[i])
		}
	}
}

// share tells other replicas of a bar.
func (s *barWatch) share(ctx context.Context, start string) {
	bounded, cancel := storeContext(ctx, s.cfg)
	defer cancel()
	if err := s.shared.Bar(bounded, start); err != nil {
		s.cfg.Logger.Debug("bar is not shared", "error", err)
	}
}
