package server

import (
	"log/slog"
	"sync"

	"carryover/upstream"
)

// verdicts remembers what the start of each instance was last found to be worth to the token proof, so that a change
// makes one line in the log.
type verdicts struct {
	logger *slog.Logger

	mu    sync.Mutex // guards known
	known map[engine]verdict
}

// engine is an instance in one of its roles.
type engine struct {
	role upstream.Role
	name string
}

// verdict is about one start of an instance; why is "" for one that takes part.
type verdict struct{ start, why string }

// maxVerdicts is above the number of instances of any deployment. Forgetting them costs lines.
const maxVerdicts = 4096

// note takes down a verdict, and logs it if it is another than the last.
func (v *verdicts) note(instance *upstream.Instance, start, why string) {
	at, is := engine{instance.Role, instance.Name}, verdict{start, why}
	v.mu.Lock()
	was, found := v.known[at]
	if len(v.known) >= maxVerdicts {
		clear(v.known)
	}
	v.known[at] = is
	v.mu.Unlock()
	if found && was == is {
		return
	}
	if why == "" {
		v.logger.Info("engine takes part in the token proof", "role", instance.Role.String(), "instance", instance.Name, "start", start)
		return
	}
	v.logger.Warn("engine takes no part in the token proof, nothing of it is reused", "role", instance.Role.String(), "instance", instance.Name, "start", start, "why", why)
}
