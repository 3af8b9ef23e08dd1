package fleet

import (
	"time"

	"carryover/upstream"
)

// identity is what stays the same of an engine, however it is configured. An instance of another name is another engine at the same
// place: tickets name decode's.
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

// newEngine returns the engine of an instance of which nothing is known.
func (f *Fleet) newEngine(instance upstream.Instance) *Engine {
	e := &Engine{identity: identityOf(&instance), fleet: f}
	e.configured.Store(&instance)
	return e
}

// Instance returns the engine's instance as it is configured now. It is not to be changed.
func (e *Engine) Instance() *upstream.Instance { return e.configured.Load() }

// configure gives the engine other settings. Its process is the one that it was, with all that this process holds, so that nothing
// is forgotten but what the settings may have spoiled: what the connector was told, which may have come from a wrong port, and that
// pairs were stopped, which a wrong kv_host does. It needs f.mu.
func (f *Fleet) configure(e *Engine, instance upstream.Instance) {
	if *e.Instance() == instance {
		return
	}
	e.configured.Store(&instance)
	e.mu.Lock()
	known := e.known
	e.mu.Unlock()
	if known != nil {
		known.reintroduce()
	}
	for _, prefill := range f.engines[upstream.RolePrefill] {
		prefill.retry(e)
	}
}

// reintroduce has the connector ask the start again.
func (s *Incarnation) reintroduce() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connectorFacts, s.introduced, s.introduceErr = nil, false, nil
}

// retry has the links be tried again that were stopped: those with an engine that is configured anew, or all if it is this one.
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

// retry ends a stop of the link, and a pause of its releases.
func (ps *PairState) retry() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.paused, ps.trials.until = time.Time{}, time.Time{}
}
