package fleet

import (
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet/facts"
)

// identity is what never changes of an engine. An instance with another name is another engine, even at the same
// address, because tickets name their decode engine.
type identity struct {
	Name    string
	Role    upstream.Role
	BaseURL string
	Rank    int
	Ranked  bool
}

func identityOf(i *upstream.Instance) identity {
	return identity{i.Name, i.Role, i.BaseURL, i.Rank, i.Ranked}
}

// newEngine returns the engine of an instance that is new to the fleet.
func (f *Fleet) newEngine(instance upstream.Instance) *Engine {
	e := &Engine{identity: identityOf(&instance), fleet: f}
	e.Speed = facts.NewSpeed(&e.speed, f.clock)
	e.configured.Store(&instance)
	return e
}

// Instance returns the engine's instance as it is configured now. It is not to be changed.
func (e *Engine) Instance() *upstream.Instance { return e.configured.Load() }

// configure gives the engine other settings. Its process is still the same, so the fleet keeps what it knows, except
// what the old settings may have spoiled: the connector's facts, which may come from a wrong port, and stopped pairs,
// which a wrong kv_host causes. It needs f.mu.
func (f *Fleet) configure(e *Engine, instance upstream.Instance) {
	if *e.Instance() == instance {
		return
	}
	e.configured.Store(&instance)
	e.mu.Lock()
	known := e.known
	e.mu.Unlock()
	if known != nil {
		known.Introduction.Again()
	}
	for _, prefill := range f.engines[upstream.RolePrefill] {
		prefill.retry(e)
	}
}

// retry ends the stops of this prefill engine's pairs with the changed engine; of all its pairs if it is the changed
// engine itself.
func (e *Engine) retry(changed *Engine) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.known == nil {
		return
	}
	e.known.mu.Lock()
	defer e.known.mu.Unlock()
	for decode, ps := range e.known.pairs {
		if decode == changed || e == changed {
			ps.retry()
		}
	}
}

// retry ends the pair's stop and the pause of its releases.
func (ps *PairState) retry() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.paused, ps.trials.until = time.Time{}, time.Time{}
}
