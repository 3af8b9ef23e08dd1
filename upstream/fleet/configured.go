package fleet

import (
	"sync/atomic"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet/facts"
)

// identity is what never changes of an engine. An instance with another name is another engine, even at the same
// address, because tickets name their decode engine.
type identity struct {
	Name string
	location
}

// location is where an engine answers, whatever its name is. Data-parallel ranks share an address, but each has its own
// prefix cache.
type location struct {
	Role    upstream.Role
	BaseURL string
	Rank    int
	Ranked  bool
}

// configured is an engine's instance: what never changes of it, and how it is configured now.
type configured struct {
	identity
	settings atomic.Pointer[upstream.Instance]
}

func identityOf(i *upstream.Instance) identity {
	return identity{i.Name, location{i.Role, i.BaseURL, i.Rank, i.Ranked}}
}

// newEngine returns the engine of an instance that is new to the fleet.
func (f *Fleet) newEngine(instance upstream.Instance) *Engine {
	e := &Engine{configured: configured{identity: identityOf(&instance)}, fleet: f}
	e.Cache = f.Prefixes.NewCache(&e.seen.place, e.member.gone.Load)
	e.Speed = facts.NewSpeed(&e.seen.speed, f.clock)
	e.Health, e.models.engine = newHealth(e), e
	e.readings = readings{engine: e}
	e.settings.Store(&instance)
	return e
}

// Instance returns the engine's instance as it is configured now. It is not to be changed.
func (c *configured) Instance() *upstream.Instance { return c.settings.Load() }

// configure gives the engine other settings. Its process is still the same, so the fleet keeps what it knows, except
// what the old settings may have spoiled: stopped pairs, which a wrong kv_host causes. It needs f.mu.
func (f *Fleet) configure(e *Engine, instance upstream.Instance) {
	if *e.Instance() == instance {
		return
	}
	e.settings.Store(&instance)
	for _, prefill := range f.Engines(upstream.RolePrefill) {
		if known := prefill.lastKnown(); known != nil {
			known.retry(e)
		}
	}
}

// kvTTL returns after which time decode frees blocks by itself, 0 if that is not known.
func (c *configured) kvTTL() time.Duration { return c.Instance().KVTTL }
