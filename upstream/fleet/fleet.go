package fleet

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"carryover/upstream"
)

// Config configures a Fleet. Client, the policies and the limits are required.
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
	// Render is the server that renders the prompts which render endpoints alone tell, for the whole fleet; nil for the prefill engines
	// themselves.
	Render *upstream.Instance
	// ProbeIDs has Run probe each new start for whether it uses forwarded ids, so that
	// turns rarely wait for that.
	ProbeIDs bool
	// Introduce asks each start for what the connector has to know of it, nil if that is nothing.
	Introduce upstream.Introduce
	// MaxInFlight is how many attempts an engine may have at once; 0 is no limit.
	MaxInFlight int
	// Now is the clock, time.Now if nil.
	Now func() time.Time
	// Logger is told when an engine goes down, opens its circuit or is ejected, and when it is back; nil tells no log.
	Logger *slog.Logger
}

// Fleet is the live set of engines. Create it with New, fill it with Set, keep it up to
// date with Run. It is safe for concurrent use.
type Fleet struct {
	cfg   Config
	now   func() time.Time
	born  time.Time
	stops atomic.Int64 // links that are stopped (stops.go)

	answered   [upstream.RoleDecode + 1]atomic.Bool // by role: an engine has answered (answered.go)
	came       chan struct{}                        // has something when there are engines that were never asked
	every      time.Duration                        // from one round of probing to the next
	refreshing refreshing
	onFreed    atomic.Pointer[func()] // see OnFreed
	prefixes   prefixIndex
	buffers    promptBuffers
	renderer   *renderer // nil if prefill engines render

	// mu guards the rest, and lets one pick at a time weigh what is in flight. It is
	// taken before the lock of an Engine.
	mu      sync.Mutex
	engines map[upstream.Role][]*Engine // the lists are replaced, never changed
	named   map[upstream.Role]map[string]*Engine
	placed  map[string][]*Engine // by address
	away    []quarantine         // of engines that are gone, the oldest first
	// clearings are when decode engines that are gone have cleared their KV cache, by name.
	clearings map[string]time.Time
	picking   picking
	// draining are gone and have attempts in flight.
	draining []*Engine
	departed []departed // the first that went first
	holders  []*Engine  // the decode engines, and those that have departed; replaced, never changed
}

// New returns an empty fleet.
func New(cfg Config) *Fleet {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	f := &Fleet{cfg: cfg, now: cfg.Now, born: cfg.Now(), engines: map[upstream.Role][]*Engine{}, came: make(chan struct{}, 1), every: probeEvery}
	if cfg.Render != nil {
		f.renderer = &renderer{at: cfg.Render}
	}
	if cfg.Client != nil {
		cfg.Client.OnBreak(f.broke)
	}
	return f
}

// Set replaces the set of instances. An instance of the same name at the same place (role, address, rank) keeps
// its Engine, whatever else is configured. Others are gone with everything known of them, but for bars, as soon as the attempts
// end that they have, and of decode engines as soon as none of their blocks can be pinned any more; one that comes back
// before is the Engine that it was. Idle connections are closed when an instance goes.
func (f *Fleet) Set(instances []upstream.Instance) {
	if gone := f.replace(instances); gone {
		f.cfg.Client.Close()
	}
	f.freed()
}

// replace does what Set promises but for connections, and reports whether an engine has gone.
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
	f.picking = picking{round: f.picking.round} // engines and lists of models remember rounds
	var forgotten []*Engine
	for _, e := range gone {
		e.gone.Store(true)
		f.keepQuarantine(e)
		f.keepCleared(e)
		if !f.depart(e) {
			forgotten = append(forgotten, e)
		}
		e.forgetBlocks(false)
		if e.inFlight.Load() > 0 {
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

// succeed returns the engine of an instance that the fleet does not have. old is the engine of its name, nil if there is
// none. It needs f.mu.
func (f *Fleet) succeed(old *Engine, instance upstream.Instance) *Engine {
	e := f.returning(identityOf(&instance))
	if e == nil {
		e = f.newEngine(instance)
	}
	e.setDrain(old != nil && old.drains())
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

// SetPolicies changes how the instances of the two roles are picked.
func (f *Fleet) SetPolicies(prefill, decode upstream.Policy) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cfg.Prefill, f.cfg.Decode = prefill, decode
}

// SetMaxInFlight changes how many attempts an engine may have at once; 0 is no limit.
func (f *Fleet) SetMaxInFlight(n int) {
	f.mu.Lock()
	f.cfg.MaxInFlight = n
	f.mu.Unlock()
	f.freed()
}
