package server

import (
	"context"
	"errors"
	"time"

	"carryover/upstream"
)

// errReceipt is a prefill answer that does not repeat the ids that it was sent.
var errReceipt = errors.New("prefill did not compute the ids that it was sent; restart it, its prefix cache is in doubt")

// barEvery is how often bars are compared with those of other replicas, barAgain how often a barred instance is
// mentioned in the log.
const (
	barEvery = time.Second
	barAgain = time.Minute
)

// barred reports whether no prefill leg may go to an instance. While its start is not known, a bar holds.
func (s *Server) barred(instance *upstream.Instance) bool {
	return s.deps.Bars.Barred(instance, s.knownStart(instance).Incarnation)
}

// barredPrefills names the prefill instances that are barred.
func (s *Server) barredPrefills() (names []string) {
	for _, instance := range s.deps.Pool.Instances(upstream.RolePrefill) {
		if s.barred(instance) {
			names = append(names, instance.Name)
		}
	}
	return names
}

// bar records that a start of prefill computed other ids than it was sent. Replicas hear of it within a second, or when
// Redis answers again.
func (s *Server) bar(t *turn, p *pair) {
	s.deps.Bars.Bar(p.prefill, p.starts.prefill.Incarnation)
	s.cfg.Logger.Error("prefill is barred until it is restarted", "turn", t.id, "prefill", p.prefill.Name,
		"start", p.starts.prefill.Incarnation, "error", errReceipt)
}

// watchBars shares bars with other replicas, and reminds of them, until ctx ends.
func (s *Server) watchBars(ctx context.Context) {
	tick := time.NewTicker(barEvery)
	defer tick.Stop()
	said := map[string]time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.compareBars(ctx, said)
	}
}

// compareBars is one round of watchBars. said is when each barred instance was mentioned last; the first time is when it
// was barred.
func (s *Server) compareBars(ctx context.Context, said map[string]time.Time) {
	defer s.survive("task", "bars")
	instances := s.deps.Pool.Instances(upstream.RolePrefill)
	s.deps.Bars.Retain(instances)
	for _, instance := range instances {
		last, found := said[instance.Name]
		switch {
		case !s.barred(instance):
			delete(said, instance.Name)
		case !found:
			said[instance.Name] = time.Now()
		case time.Since(last) >= barAgain:
			said[instance.Name] = time.Now()
			s.cfg.Logger.Warn("prefill is barred; restart it, its prefix cache is in doubt", "prefill", instance.Name)
		}
	}
	if s.deps.SharedBars != nil {
		s.exchangeBars(ctx, instances)
	}
}

// exchangeBars takes over what other replicas have found about the starts that are alive, and tells them what they don't
// know.
func (s *Server) exchangeBars(ctx context.Context, instances []*upstream.Instance) {
	var alive []*upstream.Instance
	var starts, names []string
	for _, instance := range instances {
		if start := s.knownStart(instance).Incarnation; start != "" {
			alive, starts, names = append(alive, instance), append(starts, start), append(names, instance.BaseURL+" "+start)
		}
	}
	bounded, cancel := s.storeContext(ctx)
	defer cancel()
	shared, err := s.deps.SharedBars.Barred(bounded, names)
	if err != nil || len(shared) != len(names) {
		return // the next round comes soon
	}
	for i, instance := range alive {
		switch local := s.deps.Bars.Barred(instance, starts[i]); {
		case shared[i] && !local:
			s.deps.Bars.Bar(instance, starts[i])
			s.cfg.Logger.Error("prefill is barred until it is restarted: another replica has found that it does not compute the ids that it is sent",
				"prefill", instance.Name, "start", starts[i])
		case local && !shared[i]:
			s.shareBar(ctx, names[i])
		}
	}
}

// shareBar tells other replicas of a bar.
func (s *Server) shareBar(ctx context.Context, start string) {
	bounded, cancel := s.storeContext(ctx)
	defer cancel()
	if err := s.deps.SharedBars.Bar(bounded, start); err != nil {
		s.cfg.Logger.Debug("bar is not shared", "error", err)
	}
}
