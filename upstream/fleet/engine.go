package fleet

import (
	"sync"
	"sync/atomic"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet/facts"
	"carryover/upstream/fleet/health"
	"carryover/upstream/fleet/prefixindex"
)

// Engine is one configured instance: its address, its role and what it does now. Its identity never changes; its other settings may
// ([Engine.Instance]). It is safe for concurrent use.
type Engine struct {
	identity
	fleet     *Fleet
	settings  atomic.Pointer[upstream.Instance]
	gone      atomic.Bool // Set has removed it
	forgotten atomic.Bool // gone, and the fleet does not wait for its pinned blocks (holders.go)
	until     time.Time   // when all blocks of a departed decode engine have expired; guarded by Fleet.mu

	// Picks read these without a lock: with a thousand engines, locks alone took 16 µs per pick. The values may belong to different
	// moments.
	last        atomic.Pointer[Incarnation] // last one read, nil if unknown
	load        atomic.Pointer[Load]        // at the last reading
	served      atomic.Pointer[modelSet]    // nil if the engine may serve any model
	quarantined atomic.Pointer[string]      // id of the incarnation last quarantined, "" if that was unknown; nil for none
	place       prefixindex.Place           // among the candidates of the last pick; guarded by picking.mu

	inFlight  atomic.Int64  // attempts
	queued    atomic.Int64  // prompt tokens of these attempts
	handBacks atomic.Int64  // hand-back legs to this prefill engine
	failed    atomic.Int64  // legs that failed within failedFor
	attempts  atomic.Uint64 // numbers the attempts

	Health    health.Health
	Speed     facts.Speed        // of prefill; it belongs to the machine, so it survives restarts
	Cache     *prefixindex.Cache // from its KV events
	AnswerIDs facts.AnswerIDs

	mu       sync.Mutex // guards the rest. Lock order: Fleet, Engine, Health, Incarnation
	readings readings
	models   listing
	judged   string // last judgment of its part in the token proof, "" for none
}

// identity never changes. An instance with another name is another engine, even at the same address, because tickets
// name their decode engine.
type identity struct {
	Name string
	location
}

// location is where an engine answers. Data-parallel ranks share an address, but each has its own prefix cache.
type location struct {
	Role    upstream.Role
	BaseURL string
	Rank    int
	Ranked  bool
}

func identityOf(i *upstream.Instance) identity {
	return identity{i.Name, location{i.Role, i.BaseURL, i.Rank, i.Ranked}}
}

func (f *Fleet) newEngine(instance upstream.Instance) *Engine {
	e := &Engine{identity: identityOf(&instance), fleet: f}
	e.settings.Store(&instance)
	e.load.Store(&Load{})
	e.Cache = f.Prefixes.NewCache(&e.place, e.gone.Load)
	log := f.cfg.Logger.With("role", e.Role.String(), "instance", e.Name)
	e.Health.Init(health.Config{
		Now: f.Now, Born: f.born, Log: log, Heard: func() { f.answered[e.Role].Store(true) }, Tell: e.tell,
		Back: func() {
			f.freed()
			e.tell("answers again")
		},
		Down: func(why string) {
			f.cfg.Client.Close() // idle connections are dead, and the host name may resolve to another address now
			log.Warn("engine is down", "why", why)
			e.tell("is down: " + why)
		},
	})
	return e
}

func (e *Engine) tell(what string) {
	role := map[upstream.Role]string{upstream.RolePrefill: "Prefill", upstream.RoleDecode: "Decode"}[e.Role]
	e.fleet.cfg.Tell(role + " instance " + e.Name + " " + what + ".")
}

// Instance returns the current settings. Callers must not change them.
func (e *Engine) Instance() *upstream.Instance { return e.settings.Load() }

func (e *Engine) begin(tokens int) (number uint64) {
	number = e.attempts.Add(1)
	e.inFlight.Add(1)
	e.queued.Add(int64(tokens))
	e.Health.Begin(number)
	return number
}

// end needs no lock of the Fleet.
func (e *Engine) end(number uint64, tokens int) {
	e.queued.Add(-int64(tokens))
	e.Health.End(number)
	// Set stores gone before it reads inFlight, so either Set or end sees the other.
	if e.inFlight.Add(-1) == 0 && e.gone.Load() {
		e.fleet.left(e)
	}
}

const failedFor = 10 * time.Second

// Burden counts a failed leg as a running request for failedFor. Without that, an engine that fails at once looks idle and gets all
// turns.
func (e *Engine) Burden() {
	e.failed.Add(1)
	time.AfterFunc(failedFor, func() { e.failed.Add(-1) })
}

// Refused records that the engine refused a connection: picks avoid it for [health.DownFor]. Its last reading and any reading
// under way no longer count, because another incarnation may answer next.
//
// All data-parallel ranks at its address are marked, because trying each would use up a turn's attempts. An instance of the
// other role at the address loses only its reading.
func (e *Engine) Refused() {
	for _, other := range append(e.fleet.at(e.BaseURL), e) { // the fleet may have removed e; marking it twice does no harm
		other.forget()
		if other.Role == e.Role {
			other.Health.Refused()
		}
	}
}

// broke discards the readings of all engines at an address after a connection was refused or has ended: another process may answer there now. It
// may have the same engine id; only process_start_time_seconds tells the two apart.
func (f *Fleet) broke(url string) {
	for _, e := range f.at(url) {
		e.doubt()
	}
}

// LearnPrefill records a prefill leg that was answered just now and computed this many tokens. Every leg teaches the speed; ejection judges
// only legs whose number of tokens is certain. In both, waiting behind other legs does not count as slowness.
func (e *Engine) LearnPrefill(tokens int, took time.Duration, certain bool) {
	if computed, took := e.Speed.Learn(e.fleet.clock(), tokens, took); certain {
		e.Health.Took(computed, took)
	}
}

// PerToken returns prefill's time per prompt token, 0 if unknown.
func (e *Engine) PerToken() time.Duration { return time.Duration(e.Speed.PerToken(e.fleet.clock())) }

// Expects returns how long prefill takes for the queued tokens and these, at the last known speed however old, 0 if none. Limits use it: picks
// forget an old speed to try a slow engine again, but a limit that forgets would end turns that work.
func (e *Engine) Expects(tokens int) time.Duration {
	return time.Duration(min(e.Speed.Shown()*(float64(tokens)+e.ahead(e.load.Load().Others)), float64(24*time.Hour)))
}

// ahead returns the prompt tokens queued before a new turn. Each request of other clients counts as a typical leg of the engine.
func (e *Engine) ahead(others int) float64 {
	return float64(e.queued.Load()) + float64(others)*max(e.Speed.Typical(), 1)
}

func (e *Engine) answers() bool { return e.Health.Answers(e.fleet.clock()) }

// Takes reports whether a leg for the model can go to the engine, as far as is known without asking it.
func (e *Engine) Takes(model string) bool {
	return !e.Quarantined() && e.Reachable() && !e.Health.Unreached() && !e.Health.Pauses() && e.MayServe(model)
}

// Reachable reports whether the engine's blocks can be read: it is in the fleet, not down, and does not seem to hang.
func (e *Engine) Reachable() bool { return !e.gone.Load() && e.answers() && !e.Health.Suspected() }
