package quarantine

import (
	"context"
	"fmt"

	"carryover/upstream/fleet"
	"carryover/upstream/fleet/health"
)

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

// drains takes over what other replicas' operators have decided since, and tells the replicas what they don't know.
func (w *Watch) drains(ctx context.Context, engines []*fleet.Engine, marks map[string]string) {
	for _, engine := range engines {
		own, shared := engine.Health.Drain(), readDrain(marks[drainMark(engine)])
		switch {
		case own.After(shared):
			w.ShareDrain(ctx, engine)
		case shared.After(own):
			w.Fleet.TakeOver(engine, shared)
			if own.On != shared.On {
				w.Epoch.logger.Info("instance drained or taken back by an operator of all replicas", "role", engine.Role, "name", engine.Name, "draining", shared.On)
				w.TellDrain(taken(engine, shared.On))
			}
		}
	}
}

// taken says what another replica's operator, or one of before this replica's start, has done.
func taken(engine *fleet.Engine, drained bool) string {
	if drained {
		return "An operator of all replicas drains " + engine.Role.String() + " " + engine.Name + ": it gets no new turns, and its open turns end as usual."
	}
	return "An operator of all replicas takes " + engine.Role.String() + " " + engine.Name + " back: it gets turns again."
}

// ShareDrain tells other replicas what an operator has decided about an instance, and reports whether they share it. Without that the next
// round tries again.
func (w *Watch) ShareDrain(ctx context.Context, engine *fleet.Engine) bool {
	if w.Epoch.shared == nil {
		return false
	}
	return w.share(ctx, drainMark(engine), mark(engine.Health.Drain()))
}
