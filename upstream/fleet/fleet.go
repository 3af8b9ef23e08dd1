package fleet

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet/facts"
	"carryover/upstream/fleet/prefixindex"
)

// Config configures a Fleet. Client, the policies and the limits are required.
type Config struct {
	// Client sends the requests to the engines.
	Client *upstream.Client
	// Prefill and Decode pick the instances of their roles.
	Prefill, Decode upstream.Policy
	// ReadLimit bounds one reading of /metrics. vLLM answers Prometheus within milliseconds; the limit allows for a
	// busy API server.
	ReadLimit time.Duration
	// AskLimit bounds the tokenising of one prompt, and one question about a chat template.
	AskLimit time.Duration
	// Render is the server that renders prompts for the whole fleet where only a render endpoint can tell a prompt's
	// tokens. nil: the prefill engines render themselves.
	Render *upstream.Instance
	// ProbeIDs makes Run probe each new incarnation for whether it uses the token ids that it is sent, so that turns
	// rarely wait for the probe.
	ProbeIDs bool
	// Introduce asks an incarnation for the facts that the connector needs of it; nil if the connector needs none.
	Introduce upstream.Introduce
	// MaxInFlight is how many attempts an engine may run at once; 0 means no limit.
	MaxInFlight int
	// Now is the clock, time.Now if nil.
	Now func() time.Time
	// Logger is told when an engine goes down, opens its circuit or is ejected, and when it is back; nil discards
	// these lines.
	Logger *slog.Logger
}

// Fleet is the live set of engines. Create it with New, fill it with Set, keep it up to
// date with Run. It is safe for concurrent use.
type Fleet struct {
	cfg   Config
	now   func() time.Time
	born  time.Time
	stops atomic.Int64 // how many pairs are stopped (stops.go)

	answered   [upstream.RoleDecode + 1]atomic.Bool // by role: whether any engine has ever answered (answered.go)
	came       chan struct{}                        // wakes Run: there are engines that were never asked
	every      time.Duration                        // interval between rounds of probing
	refreshing refreshing
	onFreed    atomic.Pointer[func()] // see OnFreed
	Prefixes   *prefixindex.Index     // which prefill engines hold which beginnings of prompts
	facts      *facts.Shared

	// mu guards the rest, and serialises picks. Lock order: Fleet, Engine.
	mu      sync.Mutex
	engines map[upstream.Role][]*Engine // the lists are replaced, never changed
	named   map[upstream.Role]map[string]*Engine
	placed  map[string][]*Engine // by address
	away    []quarantine         // quarantines of engines that are gone, the oldest first
	// clearings holds, by name, when decode engines that are gone cleared their KV cache.
	clearings map[string]time.Time
	picking   picking
	// draining are engines that were removed and still have attempts in flight.
	draining []*Engine
	departed []departed // the one that was removed first comes first
	holders  []*Engine  // the decode engines of the fleet, then the departed ones; replaced, never changed
}

// New returns an empty fleet.
func New(cfg Config) *Fleet {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	f := &Fleet{cfg: cfg, now: cfg.Now, born: cfg.Now(), engines: map[upstream.Role][]*Engine{}, came: make(chan struct{}, 1), every: probeEvery, Prefixes: &prefixindex.Index{}, refreshing: refreshing{listWait: modelListWait}}
	f.facts = &facts.Shared{Client: cfg.Client, AskLimit: cfg.AskLimit, Introduce: cfg.Introduce, Now: func() time.Time { return f.now() }}
	if cfg.Render != nil {
		f.facts.Render(cfg.Render)
	}
	if cfg.Client != nil {
		cfg.Client.OnBreak(f.broke)
	}
	return f
}

// Set replaces the set of instances. An instance with the same name, role, address and rank keeps its Engine, whatever
// other settings change. An engine that is missing is removed: the fleet forgets it, except its quarantine, when its
// last attempt has ended and, for decode, when none of its blocks can be pinned any more. An instance that comes back
// before that gets the same Engine again. Set closes idle connections when it removes an engine.
func (f *Fleet) Set(instances []upstream.Instance) {
	if gone := f.replace(instances); gone {
		f.cfg.Client.Close()
	}
	f.freed()
}

// replace does the work of Set except closing connections, and reports whether it removed an engine.
func (f *Fleet) replace(instances []upstream.Instance) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	next, kept := map[upstream.Role][]*Engine{}, map[*Engine]bool{}
	named, placed := map[upstream.Role]map[string]*Engine{}, map[string][]*Engine{}
	var added, gone []*Engine
	for _, instance := range instances {
		e := f.named[instance.Role][instance.Name]
		if e == nil || e.identity != identityOf(&instance) {
			e = f.succeed(e, instance)
			added = append(added, e)
		}
		f.configure(e, instance)
		kept[e] = true
		next[instance.Role] = append(next[instance.Role], e)
		if named[instance.Role] == nil {
			named[instance.Role] = map[string]*Engine{}
		}
		named[instance.Role][instance.Name] = e
		placed[instance.BaseURL] = append(placed[instance.BaseURL], e)
	}
	for _, engines := range f.engines {
		for _, e := range engines {
			if !kept[e] {
				gone = append(gone, e)
			}
		}
	}
	f.engines, f.named, f.placed = next, named, placed
	f.picking = picking{round: f.picking.round} // the rounds go on, because engines and lists of models remember them
	var forgotten []*Engine
	for _, e := range gone {
		e.member.gone.Store(true)
		f.keepQuarantine(e)
		f.keepCleared(e)
		if !f.depart(e) {
			forgotten = append(forgotten, e)
		}
		e.Cache.Lost()
		if e.attempts.inFlight.Load() > 0 {
			f.leaves(e)
		}
	}
	f.forget(forgotten)
	for _, e := range added {
		f.restoreQuarantine(e)
		f.restoreCleared(e)
	}
	if len(added) > 0 {
		f.askSoon()
	}
	f.forgetDeparted()
	return len(gone) > 0
}

// succeed returns the engine for an instance that is new to the fleet. old is the engine that had its name, nil if
// there was none. It needs f.mu.
func (f *Fleet) succeed(old *Engine, instance upstream.Instance) *Engine {
	e := f.returning(identityOf(&instance))
	if e == nil {
		e = f.newEngine(instance)
	}
	e.Health.SetDrain(old != nil && old.Health.Drains())
	return e
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
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.named[role][name]
}

// at returns the engines at an address. The list is not to be changed.
func (f *Fleet) at(url string) []*Engine {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.placed[url]
}

// SetPolicies replaces the policies that pick the instances of the two roles.
func (f *Fleet) SetPolicies(prefill, decode upstream.Policy) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cfg.Prefill, f.cfg.Decode = prefill, decode
}

// SetMaxInFlight sets how many attempts an engine may run at once; 0 means no limit.
func (f *Fleet) SetMaxInFlight(n int) {
	f.mu.Lock()
	f.cfg.MaxInFlight = n
	f.mu.Unlock()
	f.freed()
}
