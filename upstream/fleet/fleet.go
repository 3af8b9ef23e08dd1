package fleet

import (
	"cmp"
	"fmt"
	"log/slog"
	"strings"
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

// Fleet is the live set of engines. Create it with New, fill it with Set, keep it up to date with Run. It is safe for
// concurrent use.
type Fleet struct {
	cfg       Config
	born      time.Time
	facts     *facts.Shared
	Prefixes  *prefixindex.Index // which prefill engines hold which beginnings of prompts
	Picker    *Picker
	Holders   *Holders
	Catalogue *Catalogue
	rounds    rounds
	members   atomic.Pointer[members]

	// mu guards the rest, and makes one change of the members at a time. Lock order: Fleet, Picker or Holders, Engine.
	mu      sync.Mutex
	removed removed
}

// removed is what the fleet remembers of engines that were removed, besides its Holders.
type removed struct {
	draining []*Engine // they still have attempts in flight
	away     quarantines
}

// New returns an empty fleet.
func New(cfg Config) *Fleet {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Tell == nil {
		cfg.Tell = func(string) {}
	}
	f := &Fleet{
		cfg: cfg, born: cfg.Now(), Prefixes: &prefixindex.Index{}, rounds: newRounds(),
	}
	f.members.Store(&members{})
	f.facts = &facts.Shared{Client: cfg.Client, AskLimit: cfg.AskLimit, Logger: cfg.Logger, Now: f.now}
	f.Picker = &Picker{
		members: &f.members, now: f.now, born: f.born, prefixes: f.Prefixes,
		prefill: cfg.Prefill, decode: cfg.Decode, most: cfg.MaxInFlight,
	}
	f.Holders = &Holders{now: f.now}
	f.Catalogue = &Catalogue{members: &f.members, now: f.now, listWait: modelListWait}
	if cfg.Render != nil {
		f.facts.Render(cfg.Render)
	}
	if cfg.Client != nil {
		cfg.Client.OnBreak(f.broke)
	}
	return f
}

// Now returns the time by the fleet's clock.
func (f *Fleet) Now() time.Time { return f.now() }

func (f *Fleet) now() time.Time { return f.cfg.Now() }

// Set replaces the set of instances. An instance with the same name, role, address and rank keeps its Engine, whatever
// other settings change. An engine that is missing is removed: the fleet forgets it, except its quarantine, when its
// last attempt has ended and, for decode, when none of its blocks can be pinned any more. An instance that comes back
// before that gets the same Engine again. Set closes idle connections when it removes an engine.
func (f *Fleet) Set(instances []upstream.Instance) {
	first := len(f.members.Load().named) == 0
	added, gone := f.replace(instances)
	if len(gone) > 0 {
		f.cfg.Client.Close()
	}
	if !first && len(added)+len(gone) > 0 {
		f.cfg.Tell(fmt.Sprintf("Instances were added: %s; removed: %s.", namesOf(added), namesOf(gone)))
	}
	f.Picker.freed()
}

// namesOf names engines for operators.
func namesOf(engines []*Engine) string {
	names := []string{}
	for _, e := range engines {
		names = append(names, e.Role.String()+" "+e.Name)
	}
	return cmp.Or(strings.Join(names, ", "), "none")
}

// replace does the work of Set but for telling of it, and returns the engines that have come and gone.
func (f *Fleet) replace(instances []upstream.Instance) (added, gone []*Engine) {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.members.Load()
	next := &members{engines: map[upstream.Role][]*Engine{}, named: map[upstream.Role]map[string]*Engine{}, placed: map[string][]*Engine{}}
	kept := map[*Engine]bool{}
	for _, instance := range instances {
		e := old.named[instance.Role][instance.Name]
		if e == nil || e.identity != identityOf(&instance) {
			e = f.succeed(e, instance)
			added = append(added, e)
		}
		f.configure(e, instance)
		kept[e] = true
		next.add(e)
	}
	for e := range old.all {
		if !kept[e] {
			gone = append(gone, e)
		}
	}
	f.change(next, added, gone)
	return added, gone
}

// change makes next the members of the fleet. What is remembered for added engines is theirs, and those of decode are
// holders, before a pick sees them. It needs f.mu.
func (f *Fleet) change(next *members, added, gone []*Engine) {
	var forgotten []*Engine
	for _, e := range gone {
		f.removed.away.keep(e, next.engines[e.Role])
		if !f.Holders.depart(e) {
			forgotten = append(forgotten, e)
		}
	}
	for _, e := range added {
		f.removed.away.restore(e)
	}
	f.Holders.join(added)
	f.members.Store(next)
	for _, e := range gone {
		e.member.gone.Store(true)
		e.Cache.Lost()
	}
	f.Picker.changed() // No attempt begins on an engine that is gone from here on.
	for _, e := range gone {
		if e.attempts.inFlight.Load() > 0 {
			f.removed.draining = append(f.removed.draining, e) // an engine that came back was taken from the list
		}
	}
	f.forget(forgotten)
	f.forgetDeparted()
	if len(added) > 0 {
		f.rounds.soon()
	}
}

// succeed returns the engine for an instance that is new to the fleet. old is the engine that had its name, nil if
// there was none. It needs f.mu.
func (f *Fleet) succeed(old *Engine, instance upstream.Instance) *Engine {
	e := f.returning(identityOf(&instance))
	if e == nil {
		e = f.newEngine(instance)
	}
	last := health.Drain{}
	if old != nil {
		last = old.Health.Drain()
	}
	e.Health.Decided(last)
	return e
}

// Engines returns all engines of a role in configured order. The list is not to be changed.
func (f *Fleet) Engines(role upstream.Role) []*Engine { return f.members.Load().engines[role] }

// Engine returns the engine of that role and name, nil if there is none.
func (f *Fleet) Engine(role upstream.Role, name string) *Engine {
	return f.members.Load().named[role][name]
}

// at returns the engines at an address. The list is not to be changed.
func (f *Fleet) at(url string) []*Engine { return f.members.Load().placed[url] }
