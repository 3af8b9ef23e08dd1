package fleet

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet/facts"
	"carryover/upstream/fleet/health"
	"carryover/upstream/fleet/prefixindex"
)

// Engine is one configured instance: its address and role, and what it does now. What one run of its process has shown belongs to an
// [Incarnation]. Its identity (name, role, address, rank) does not change; its other settings may ([Engine.Instance]). It is safe for
// concurrent use.
type Engine struct {
	identity
	fleet     *Fleet
	settings  atomic.Pointer[upstream.Instance]
	gone      atomic.Bool // Set has removed it
	forgotten atomic.Bool // it is gone, and the fleet does not wait for its pinned blocks either (holders.go)
	until     time.Time   // when all blocks of a decode engine that has departed have expired; the lock of the Fleet guards it

	// What picks read without a lock: with a thousand engines, locks alone took 16 µs per pick. The values may belong to different moments.
	last        atomic.Pointer[Incarnation] // the incarnation that was read last, nil while it is not known
	load        atomic.Pointer[Load]        // at the last reading
	served      atomic.Pointer[modelSet]    // nil if the engine may serve any model
	quarantined atomic.Pointer[string]      // id of the incarnation that was last quarantined, "" for one that was not known; nil for none
	place       prefixindex.Place           // where the last pick that saw it has put it; the lock of picks guards it

	// The requests of ours that it has.
	inFlight  atomic.Int64  // attempts
	queued    atomic.Int64  // prompt tokens of these attempts
	handBacks atomic.Int64  // hand-back legs to this prefill engine
	failed    atomic.Int64  // legs that failed lately
	attempts  atomic.Uint64 // how many there were: each has a number

	Health    health.Health
	Speed     facts.Speed        // of prefill; it belongs to the machine, so it outlasts restarts
	Cache     *prefixindex.Cache // what its KV events tell
	AnswerIDs facts.AnswerIDs

	mu       sync.Mutex // guards the rest. Lock order: Fleet, Engine, Health, Incarnation
	readings readings
	models   listing
	judged   string // the last judgment of its part in the token proof, "" for none
}

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

func identityOf(i *upstream.Instance) identity {
	return identity{i.Name, location{i.Role, i.BaseURL, i.Rank, i.Ranked}}
}

// newEngine returns the engine of an instance that is new to the fleet.
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
			f.cfg.Client.Close() // idle connections will not serve again, and the host name may resolve to another address by now
			log.Warn("engine is down", "why", why)
			e.tell("is down: " + why)
		},
	})
	return e
}

// tell tells operators what has become of the engine.
func (e *Engine) tell(what string) {
	role := map[upstream.Role]string{upstream.RolePrefill: "Prefill", upstream.RoleDecode: "Decode"}[e.Role]
	e.fleet.cfg.Tell(role + " instance " + e.Name + " " + what + ".")
}

// Instance returns the engine's instance as it is configured now. It is not to be changed.
func (e *Engine) Instance() *upstream.Instance { return e.settings.Load() }

// begin counts an attempt of a turn with so many prompt tokens, and returns its number.
func (e *Engine) begin(tokens int) (number uint64) {
	number = e.attempts.Add(1)
	e.inFlight.Add(1)
	e.queued.Add(int64(tokens))
	e.Health.Begin(number)
	return number
}

// end ends what begin has begun. It needs no lock of the Fleet.
func (e *Engine) end(number uint64, tokens int) {
	e.queued.Add(-int64(tokens))
	e.Health.End(number)
	// Set marks an engine as gone before it reads inFlight, so one of the two sides sees the other.
	if e.inFlight.Add(-1) == 0 && e.gone.Load() {
		e.fleet.left(e)
	}
}

// failedFor is how long a leg that failed counts as a request that its engine runs.
const failedFor = 10 * time.Second

// Burden has a leg that failed count as a running request for a while: an engine that fails at once would look idle, and get all turns.
func (e *Engine) Burden() {
	e.failed.Add(1)
	time.AfterFunc(failedFor, func() { e.failed.Add(-1) })
}

// Refused records that the engine refused a connection. The engine is avoided for [health.DownFor], and its last reading counts
// no more, because another incarnation may answer next; a reading under way is discarded too.
//
// All data-parallel ranks of a server share its address, so all of them are marked: to try each rank would use up the
// attempts of a turn. An instance of the other role at the same address only loses its reading.
func (e *Engine) Refused() {
	for _, other := range append(e.fleet.at(e.BaseURL), e) { // the fleet may have removed it already, and twice does no harm
		other.forget()
		if other.Role == e.Role {
			other.Health.Refused()
		}
	}
}

// broke discards the readings of all engines at an address after one of their connections was refused or ended: another process may answer there
// by now. It may have the same engine id, so only process_start_time_seconds tells the two processes apart.
func (f *Fleet) broke(url string) {
	for _, e := range f.at(url) {
		e.doubt()
	}
}

// Broke records that a connection of the engine ended before its answer was complete.
func (e *Engine) Broke() { e.fleet.broke(e.BaseURL) }

// Doubted records that a leg failed as the request may have caused. Only if the engine fails a request of our own, too, its circuit opens. An
// engine that refuses our key has accepted the client's.
func (e *Engine) Doubted(leg *upstream.LegError) {
	if e.Health.Doubted() {
		go func() { e.Health.Asked(e.Last().Capability.Try(context.Background(), leg)) }() // within 5 s
	}
}

// LearnPrefill records a prefill leg that computed so many tokens of its prompt and was answered just now. The engine's speed is learnt from
// each leg, ejection judges only legs whose number of tokens is certain, and judges anew after each restart and each ejection. Both take the
// same sample of a leg, in which waiting behind other legs is no slowness.
func (e *Engine) LearnPrefill(tokens int, took time.Duration, certain bool) {
	if computed, took := e.Speed.Learn(e.fleet.clock(), tokens, took); certain {
		e.Health.Took(computed, took)
	}
}

// PerToken is how long prefill takes per prompt token, 0 while that is not known.
func (e *Engine) PerToken() time.Duration { return time.Duration(e.Speed.PerToken(e.fleet.clock())) }

// Expects returns how long prefill takes for so many tokens behind those that are queued, at the speed that legs have shown last, however long
// ago: 0 before the first. It is for limits. A pick has to try an engine anew that once seemed slow; a limit that forgets would end what works.
func (e *Engine) Expects(tokens int) time.Duration {
	return time.Duration(min(e.Speed.Shown()*(float64(tokens)+e.ahead(e.load.Load().Others)), float64(24*time.Hour)))
}

// ahead returns the prompt tokens that the engine has to compute for our attempts and for requests of others, each of which counts like an
// ordinary leg of the engine.
func (e *Engine) ahead(others int) float64 {
	return float64(e.queued.Load()) + float64(others)*max(e.Speed.Typical(), 1)
}

func (e *Engine) answers() bool { return e.Health.Answers(e.fleet.clock()) }

// Reachable reports whether the engine is in the fleet, is not down and not suspected to hang, so that its blocks can be read.
func (e *Engine) Reachable() bool { return !e.gone.Load() && e.answers() && !e.Health.Suspected() }
