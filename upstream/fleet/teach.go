package fleet

import (
	"context"

	"carryover/upstream"
	"carryover/upstream/fleet/facts"
)

// teach teaches an incarnation of prefill the common shapes of requests, beside the rounds. What is left when the engine
// gets work is taught after a later round: an engine that is busy for long learns its shapes from turns.
func (e *Engine) teach(ctx context.Context, s *Incarnation) {
	if !e.fleet.cfg.TeachShapes || e.Role != upstream.RolePrefill || !e.idle(s) {
		return
	}
	e.fleet.rounds.lessons.Go(func() {
		models := e.models.of(ctx, s.id)
		if !s.Lessons.Begin(models) {
			return
		}
		e.report(s, s.Lessons.Give(ctx, models, func() bool { return e.idle(s) }))
	})
}

// idle reports whether a request of ours would delay no turn: the engine runs this incarnation, is up, has no attempt of
// ours, and had no requests that waited at its last reading.
func (e *Engine) idle(s *Incarnation) bool {
	return s.latest() && !e.member.gone.Load() && e.Health.Usable() && !e.Quarantined() &&
		e.attempts.all() == 0 && e.seen.waiting.Load() == 0
}

// report logs what lessons have shown.
func (e *Engine) report(s *Incarnation, shown facts.Taught) {
	log := e.fleet.cfg.Logger.With("prefill", e.Name, "incarnation", s.id)
	if len(shown.Different) > 0 {
		log.Warn("tokenize differs from what prefill renders; requests of these shapes reuse nothing", "shapes", shown.Different)
	}
	if shown.Equal+len(shown.Different)+shown.Unknown > 0 {
		log.Debug("prefill was taught shapes of requests", "equal", shown.Equal, "different", len(shown.Different), "refused", shown.Unknown)
	}
}
