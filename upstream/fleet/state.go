package fleet

import (
	"context"
	"log/slog"

	"carryover/upstream"
	"carryover/upstream/fleet/health"
)

func (e *Engine) answers() bool { return e.seen.health.Answers(e.fleet.clock()) }

// newHealth returns the health of an engine that is new to the fleet.
func newHealth(e *Engine) *health.Health {
	f := e.fleet
	log := func() *slog.Logger { return f.cfg.Logger.With("role", e.Role.String(), "instance", e.Name) }
	return health.New(health.Config{
		Now: f.facts.Now, Born: f.born, Log: log, Heard: func() { f.rounds.answered[e.Role].Store(true) },
		Back: func() {
			f.Picker.freed()
			e.tell("answers again")
		},
		Down: func(why string) {
			f.cfg.Client.Close() // idle connections will not serve again, and the host name may resolve to another address by now
			log().Warn("engine is down", "why", why)
			e.tell("is down: " + why)
		},
		Tell: e.tell,
	}, &e.seen.health)
}

// tell tells operators what has become of the engine.
func (e *Engine) tell(what string) {
	role := map[upstream.Role]string{upstream.RolePrefill: "Prefill", upstream.RoleDecode: "Decode"}[e.Role]
	e.fleet.cfg.Tell(role + " instance " + e.Name + " " + what + ".")
}

// state returns the engine's state for operators, and a sentence that says why it is picked only when no other is
// left; why is "" for an engine that is up.
func (e *Engine) state() (state, why string) {
	if e.member.gone.Load() {
		return "draining", "it was removed; what is in flight goes on to its end"
	}
	state, why = e.Health.State()
	if state != "draining" && state != "down" && e.Quarantined() {
		return "quarantined", "it has computed other ids than it was sent; no prefill leg goes to it until it is restarted"
	}
	if apart := e.apart(); state == "up" && apart != "" {
		return "apart", apart
	}
	return state, why
}

// StillPaused reports whether an engine that has refused a request as paused is paused still. It asks the engine, for a
// fraction of what a leg costs ([health.Health.StillPaused]).
func StillPaused(ctx context.Context, e *Engine) bool {
	return e.Health.StillPaused(func() (paused, told bool) {
		ctx, cancel := context.WithTimeout(ctx, e.fleet.cfg.ReadLimit)
		defer cancel()
		return e.fleet.cfg.Client.IsPaused(ctx, e.Instance())
	})
}

// eject ejects the engines of a role that are slower than the others. Those that are quarantined count as out.
func (f *Fleet) eject(role upstream.Role) {
	engines := f.Engines(role)
	members := make([]health.Member, len(engines))
	for i, e := range engines {
		members[i] = health.Member{Health: e.Health, Weight: e.Instance().Weight, Out: e.Quarantined()}
	}
	health.Eject(members)
}
