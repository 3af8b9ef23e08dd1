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
	Client          *upstream.Client
	Prefill, Decode upstream.Policy
	// ReadLimit bounds one reading of /metrics. vLLM answers within milliseconds; the limit allows for a busy API
	// server.
	ReadLimit time.Duration
	// AskLimit bounds /tokenize of a short prompt, and one request about a chat template.
	AskLimit time.Duration
	// Render renders prompts for the whole fleet where only a render endpoint knows a prompt's tokens. If it is nil,
	// prefill engines render.
	Render *upstream.Instance
	// ProbeIDs makes Run probe whether a new incarnation uses the token ids that it gets, so that turns rarely wait for
	// the probe.
	ProbeIDs bool
	// TeachShapes makes Run teach each idle new prefill incarnation the common shapes of requests, so that no turn is the
	// first of its shape. It needs ProbeIDs.
	TeachShapes bool
	// MaxInFlight bounds the attempts per engine; 0 means no limit.
	MaxInFlight int
	// Now is the clock, time.Now if nil.
	Now func() time.Time
	// Logger reports when an engine goes down, opens its circuit or is ejected, and when it is back; nil discards these
	// lines.
	Logger *slog.Logger
	// Tell receives one sentence when an engine is avoided, is back or was restarted, or when Set adds or removes engines. It may be nil,
	// and must not call the fleet.
	Tell func(sentence string)
}

const roles = upstream.RoleDecode + 1

// Fleet is the live set of engines. New creates it, Set fills it, Run keeps it up to date. It is safe for concurrent
// use.
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
	stops     atomic.Int64       // stopped pairs, plus prefill incarnations all of whose pairs are stopped (pairing.go)
	answered  [roles]atomic.Bool // an engine of the role has answered once

	every   time.Duration  // between two rounds of Run
	came    chan struct{}  // wakes Run for new engines
	lessons sync.WaitGroup // run beside the rounds

	// mu guards the rest and serialises changes of the members. Lock order: Fleet, picking, Engine.
	mu       sync.Mutex
	draining []*Engine    // removed engines with attempts in flight, the first removed first
	away     []quarantine // of engines that are gone, the oldest first
}

// members are the engines in configured order. They are replaced, never changed.
type members struct {
	engines [roles][]*Engine
	named   [roles]map[string]*Engine
}

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

func (f *Fleet) clock() time.Duration { return f.Now().Sub(f.born) }

// Engines returns all engines of a role in configured order. Callers must not change the list.
func (f *Fleet) Engines(role upstream.Role) []*Engine { return f.members.Load().engines[role] }

// Engine returns an engine by role and name, nil if there is none.
func (f *Fleet) Engine(role upstream.Role, name string) *Engine {
	return f.members.Load().named[role][name]
}

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

// Up counts the engines of a role that get turns: they have answered since they last refused a connection, and are not
// down, open, ejected or drained. If there are none, all engines that answer count, because turns go to them then. So
// one client whose requests open every circuit does not make the replica unready for others. Quarantines do not count
// here.
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

// Drain takes an engine out of service, or back, and reports whether the fleet has it. A drained engine is still
// probed, its tickets are used, and it gets new turns only if its role has no other. A drain survives changed settings
// and ends when the instance is removed.
func (f *Fleet) Drain(role upstream.Role, name string, drain bool) bool {
	e := f.Engine(role, name)
	if e == nil {
		return false
	}
	e.Health.SetDrain(drain)
	f.freed()
	return true
}

// TakeOver applies a drain that an operator of another replica has decided.
func (f *Fleet) TakeOver(e *Engine, drain health.Drain) {
	e.Health.Decided(drain)
	f.freed()
}
