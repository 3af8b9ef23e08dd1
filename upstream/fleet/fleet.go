package fleet

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet/facts"
	"carryover/upstream/fleet/health"
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
	// AskLimit bounds the tokenising of a short prompt, and one question about a chat template.
	AskLimit time.Duration
	// Render is the server that renders prompts for the whole fleet where only a render endpoint can tell a prompt's
	// tokens. nil: the prefill engines render themselves.
	Render *upstream.Instance
	// ProbeIDs makes Run probe each new incarnation for whether it uses the token ids that it is sent, so that turns
	// rarely wait for the probe.
	ProbeIDs bool
	// TeachShapes makes Run teach each new incarnation of prefill that uses ids the common shapes of requests while it is
	// idle, so that no turn is the first of its shape (ProbeIDs is required).
	TeachShapes bool
	// MaxInFlight is how many attempts an engine may run at once; 0 means no limit.
	MaxInFlight int
	// Now is the clock, time.Now if nil.
	Now func() time.Time
	// Logger is told when an engine goes down, opens its circuit or is ejected, and when it is back; nil discards
	// these lines.
	Logger *slog.Logger
	// Tell is told, as one sentence, what an engine is avoided for, when that is over, when it is restarted, and which engines Set has added
	// or removed; nil for nobody. It must not call the fleet.
	Tell func(sentence string)
}

// roles is how many values a Role may have.
const roles = upstream.RoleDecode + 1

// Fleet is the live set of engines. Create it with New, fill it with Set, keep it up to date with Run. It is safe for
// concurrent use.
type Fleet struct {
	cfg       Config
	born      time.Time
	facts     *facts.Shared
	Prefixes  *prefixindex.Index // which prefill engines hold which beginnings of prompts
	Holders   *Holders
	Catalogue *Catalogue
	members   atomic.Pointer[members]
	picking   picking
	onFreed   atomic.Pointer[func()]
	stops     atomic.Int64       // how many pairs are stopped, or all pairs of how many prefill incarnations (pairing.go)
	answered  [roles]atomic.Bool // whether any engine of the role has ever answered

	every   time.Duration  // between two rounds of Run
	came    chan struct{}  // wakes Run: there are engines that were never asked
	lessons sync.WaitGroup // that run beside the rounds

	// mu guards the rest, and makes one change of the members at a time. Lock order: Fleet, picking, Engine.
	mu       sync.Mutex
	draining []*Engine    // engines that were removed and still have attempts in flight, the first removed first
	away     []quarantine // of engines that are gone, the oldest first
}

// members are the engines of a fleet at a moment, in configured order. They are replaced, never changed.
type members struct {
	engines [roles][]*Engine
	named   [roles]map[string]*Engine
}

// all yields the engines, those of decode first.
func (m *members) all(yield func(*Engine) bool) {
	for _, role := range []upstream.Role{upstream.RoleDecode, upstream.RolePrefill} {
		for _, e := range m.engines[role] {
			if !yield(e) {
				return
			}
		}
	}
}

// New returns an empty fleet.
func New(cfg Config) *Fleet {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Tell == nil {
		cfg.Tell = func(string) {}
	}
	f := &Fleet{
		cfg: cfg, born: cfg.Now(), Prefixes: prefixindex.New(), every: probeEvery, came: make(chan struct{}, 1),
		picking: picking{prefill: cfg.Prefill, decode: cfg.Decode, most: cfg.MaxInFlight},
	}
	f.members.Store(&members{})
	f.facts = &facts.Shared{Client: cfg.Client, AskLimit: cfg.AskLimit, Logger: cfg.Logger, Now: f.Now}
	f.Holders = &Holders{fleet: f}
	f.Catalogue = &Catalogue{fleet: f, listWait: modelListWait}
	if cfg.Render != nil {
		f.facts.Render(cfg.Render)
	}
	if cfg.Client != nil {
		cfg.Client.OnBreak(f.broke)
	}
	return f
}

// Now returns the time by the fleet's clock.
func (f *Fleet) Now() time.Time { return f.cfg.Now() }

// clock returns the time since the fleet was made. A pick reads it once.
func (f *Fleet) clock() time.Duration { return f.Now().Sub(f.born) }

// Engines returns all engines of a role in configured order. The list is not to be changed.
func (f *Fleet) Engines(role upstream.Role) []*Engine { return f.members.Load().engines[role] }

// Engine returns the engine of that role and name, nil if there is none.
func (f *Fleet) Engine(role upstream.Role, name string) *Engine {
	return f.members.Load().named[role][name]
}

// at returns the engines at an address, those that have departed among them.
func (f *Fleet) at(url string) (all []*Engine) {
	for _, e := range slices.Concat(f.Engines(upstream.RolePrefill), f.Holders.All()) {
		if e.BaseURL == url {
			all = append(all, e)
		}
	}
	return all
}

// Started reports whether any engine of a role has ever answered.
func (f *Fleet) Started(role upstream.Role) bool { return f.answered[role].Load() }

// Up returns how many engines of a role get turns. These are the engines that have answered since they last refused a
// connection, are not down, and are neither open, ejected nor drained. If there is none of these, all engines that
// answer count, because turns go to them then: one client whose requests fail engines may open every circuit, which
// must not make the replica unready for other clients. Quarantines are not considered here. An engine that was never
// heard may be picked, but does not count.
func (f *Fleet) Up(role upstream.Role) int {
	usable, answer := 0, 0
	for _, e := range f.Engines(role) {
		switch {
		case !e.Health.HasAnswered():
		case e.Health.Usable():
			usable++
		case e.answers() && !e.Health.Silent(f.clock()):
			answer++
		}
	}
	return cmp.Or(usable, answer)
}

// Drain takes an engine out of service, or back into it. A drained engine stays known and probed, tickets of its
// blocks are still used, and it gets new turns only if no other engine of its role is left. Drain reports whether the
// fleet has the engine. The drain outlasts a change of the instance's settings, and ends when the instance is removed.
func (f *Fleet) Drain(role upstream.Role, name string, drain bool) bool {
	e := f.Engine(role, name)
	if e == nil {
		return false
	}
	e.Health.SetDrain(drain)
	f.freed()
	return true
}

// TakeOver drains an engine, or takes it back, as another replica's operator has decided.
func (f *Fleet) TakeOver(e *Engine, drain health.Drain) {
	e.Health.Decided(drain)
	f.freed()
}
