package fleet

import (
	"sync"
	"time"

	"carryover/upstream"
)

// Config configures a Fleet. All fields but ProbeIDs are required.
type Config struct {
	// Client asks the engines.
	Client *upstream.Client
	// Prefill and Decode pick the instances of their roles.
	Prefill, Decode upstream.Policy
	// ReadLimit bounds one reading of /metrics. Prometheus scrapes vLLM within
	// milliseconds; the limit leaves room for an API server that is busy.
	ReadLimit time.Duration
	// AskLimit bounds the tokenising of one prompt, and one question about a template.
	AskLimit time.Duration
	// ProbeIDs has Run probe each new start for whether it uses forwarded ids, so that
	// turns rarely wait for that.
	ProbeIDs bool
	// Introduce asks each start for what the connector has to know of it, nil if that is nothing.
	Introduce upstream.Introduce
	// Now is the clock, time.Now if nil.
	Now func() time.Time
}

// Fleet is the live set of engines. Create it with New, fill it with Set, keep it up to
// date with Run. It is safe for concurrent use.
type Fleet struct {
	cfg Config
	now func() time.Time

	// mu guards the rest, and lets one pick at a time weigh what is in flight. It is
	// taken before the lock of an Engine.
	mu      sync.Mutex
	engines map[upstream.Role][]*Engine // the lists are replaced, never changed
	away    []bar                       // of engines that are gone, the oldest first
}

// New returns an empty fleet.
func New(cfg Config) *Fleet {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Fleet{cfg: cfg, now: cfg.Now, engines: map[upstream.Role][]*Engine{}}
}

// Set replaces the set of instances. An instance whose configuration is unchanged keeps
// its Engine; of all others everything known is gone, but for bars.
func (f *Fleet) Set(instances []upstream.Instance) {
	f.mu.Lock()
	defer f.mu.Unlock()
	next, kept := map[upstream.Role][]*Engine{}, map[*Engine]bool{}
	var added, gone []*Engine
	for _, instance := range instances {
		e := find(f.engines[instance.Role], instance.Name)
		if e == nil || e.Instance != instance {
			e = &Engine{Instance: instance, fleet: f}
			added = append(added, e)
		}
		kept[e] = true
		next[instance.Role] = append(next[instance.Role], e)
	}
	for _, engines := range f.engines {
		for _, e := range engines {
			if !kept[e] {
				gone = append(gone, e)
			}
		}
	}
	f.engines = next
	for _, e := range gone {
		e.gone.Store(true) // before the links go: none is made to it from here on
		f.keepBar(e)
	}
	for _, e := range added {
		f.restoreBar(e)
	}
	for _, e := range next[upstream.RolePrefill] {
		e.unlink(gone)
	}
}

// Engines returns all engines of a role in configured order. The list is not to be
// changed.
func (f *Fleet) Engines(role upstream.Role) []*Engine {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.engines[role]
}

// Engine returns the engine of that role and name, nil if there is none.
func (f *Fleet) Engine(role upstream.Role, name string) *Engine {
	return find(f.Engines(role), name)
}

// at returns the engines at an address.
func (f *Fleet) at(url string) (all []*Engine) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, engines := range f.engines {
		for _, e := range engines {
			if e.BaseURL == url {
				all = append(all, e)
			}
		}
	}
	return all
}

// Up returns how many engines of a role are believed to answer.
func (f *Fleet) Up(role upstream.Role) (n int) {
	for _, e := range f.Engines(role) {
		if e.up() {
			n++
		}
	}
	return n
}

func find(engines []*Engine, name string) *Engine {
	for _, e := range engines {
		if e.Name == name {
			return e
		}
	}
	return nil
}
