package fleet

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet/pairs"
	"carryover/upstream/fleet/prefixindex"
)

// broken is a leg that failed by its engine's fault.
func broken() *upstream.LegError { return &upstream.LegError{Kind: upstream.Broken, Sent: true} }

// up reports whether picks prefer the engine now.
func (e *Engine) up() bool { return e.Health.Up(e.fleet.clock()) }

// reads has the engine's last reading tell of this load.
func (e *Engine) reads(l Load) {
	l.until = l.Read.Sub(e.fleet.born) + loadFor
	e.load.Store(&l)
}

// step does a step of an engine or an incarnation.
func (r *rig) step(subject, verb string, rest []string) string {
	name, id, _ := strings.Cut(subject, ".")
	e, i, want := r.engines[name], r.told[subject], strings.Join(rest, " ")
	other := append(rest, "")[0]
	n, _ := strconv.Atoi(other)
	with := r.told[other]
	pair := func() *pairs.State { return i.PairWith(with) }
	switch verb {
	case "tells":
		r.tells(e, want)
	case "says":
		r.tell(name, want)
	case "waits": // a stream, for the first byte
		e.Health.Wait(time.Hour)
	case "is-broken":
		r.broke(e.BaseURL)
	case "lists":
		r.list(name, want)
	case "is-read":
		e.Refresh(r.t.Context())
	case "current": // by Current
		return e.Current(r.t.Context()).ID()
	case "current-by-Fresh":
		return e.Fresh().ID()
	case "last":
		return e.Last().ID()
	case "asked": // so often for its metrics
		return strconv.Itoa(r.askedFor(name + "/metrics"))
	case "refuses":
		e.Refused()
	case "breaks":
		e.fleet.broke(e.BaseURL)
	case "answers":
		e.Health.Answered()
	case "serves":
		e.Health.Served()
	case "fails":
		for range n {
			e.Health.Failed(broken())
		}
	case "well", "ill": // by a probe
		e.Health.Probed(verb == "well")
	case "pauses":
		e.Health.Paused()
	case "drains", "resumes":
		if !r.Drain(roleOf(name), name, verb == "drains") {
			return "absent"
		}
	case "slows":
		r.slow(e)
	case "errs": // computes other ids than it gets
		if i == nil {
			i = e.Fresh()
		}
		i.Quarantine()
	case "learns": // tokens and time of a prefill leg
		took, _ := time.ParseDuration(rest[1])
		e.LearnPrefill(n, took, len(rest) > 2)
	case "ends":
		r.ends[name][0]()
		r.ends[name] = r.ends[name][1:]
	case "runs":
		return strconv.Itoa(e.Live().InFlight)
	case "queues":
		return strconv.Itoa(e.Live().Queued)
	case "moves":
		instance := r.instance(name)
		instance.BaseURL = "http://" + want
		r.Set(r.instances)
	case "reconfigured": // in all that does not make another engine of it
		instance := r.instance(name)
		instance.Weight, instance.KVTTL, instance.KVHost, instance.KVPort, instance.KVEvents = 7, time.Hour, "10.0.0.7", 7000, "tcp://10.0.0.7:5557"
		if r.Set(r.instances); *e.Instance() != *instance {
			return fmt.Sprint(*e.Instance())
		}
	case "returns": // the same engine or another
		is := r.Engine(e.Role, name)
		if is == e {
			return "same"
		}
		r.engines[name] = is
		return "anew"
	case "is", "not":
		state, _ := e.state()
		kept := e.Incarnation(id)
		flags := map[string]bool{
			state: true, "preferred": e.up(), "quarantined": e.Quarantined(), "reachable": e.Reachable(), "leaving": e.Leaves(), "pausing": e.Health.Pauses(),
			"listed": r.Engine(e.Role, name) == e, "found": r.Holders.Find(name, id) != nil, "over": i != nil && i.Over(), "bad": i != nil && i.Quarantined(),
			"fresh": e.Fresh() == i, "shown": e.Last() == i && e.last.Load() == i, "kept": kept != nil && (i == nil || kept == i),
			"free": e.TakesHandBack(),
		}
		for _, flag := range rest {
			if flags[flag] != (verb == "is") {
				return fmt.Sprintf("%s %v", state, flags)
			}
		}
	case "offers":
		return other + " " + statusName(pair().Begin(""))
	case "status":
		return other + " " + statusName(i.StatusWith(with))
	case "answered", "unanswered", "failed": // a ticket of the other
		pair().End(map[string]pairs.Outcome{"answered": pairs.Answered, "unanswered": pairs.Unanswered, "failed": pairs.Failed}[verb], "")
	case "loaded", "unloaded": // a hand-over to the other
		for _, name := range rest {
			i.EndLoad(r.told[name], map[string]pairs.Outcome{"loaded": pairs.Answered, "unloaded": pairs.Failed}[verb])
		}
	case "exchanged":
		pair().ExchangedKV()
	case "rejected":
		pair().ReleaseFailed(true)
	case "releases":
		return other + map[bool]string{false: " not"}[pair().Releases()]
	case "pairs":
		return strconv.Itoa(len(i.pairs))
	case "has": // a load at its last reading, but for one that is told
		l := Load{Read: r.Now()}
		_, _ = fmt.Sscanf(want, "%d running %d waiting %d short %f used %d others", &l.Running, &l.Waiting, &l.Short, &l.Usage, &l.Others)
		e.reads(l)
	case "works":
		for range n {
			e.begin(1)
		}
	case "hands-back", "handed-back":
		for range n {
			if done := e.BeginHandBack(); verb == "handed-back" {
				done()
				done()
			}
		}
	case "starts", "loses": // to tell what is in its prefix cache
		if verb == "loses" {
			e.Cache.Lost()
		} else {
			e.Cache.Started()
		}
	case "stores": // so many pieces of a prompt
		pieces, _ := strconv.Atoi(rest[1])
		e.Cache.Stored(blocks(e, chainOf(other), pieces*prefixindex.TokensPerPiece))
	case "evicts": // blocks of a prompt
		from, _ := strconv.Atoi(rest[1])
		to, _ := strconv.Atoi(rest[2])
		p := chainOf(other)
		e.Cache.Removed(blocks(e, p, len(p.IDs)).Hashes[from:to])
	case "knows": // the tokens of a prompt
		r.Prefixes.IndexPrompt(chainOf(other))
	case "computed": // a prompt, as part of an earlier turn
		if i == nil {
			i = e.Fresh()
		}
		i.computed.Record(chainOf(other).Chain)
	case "ages": // so much is computed that what was before is old
		for n := range 1 + prefixindex.MaxPieces/body.MaxChain {
			i.computed.Record(chain(10+n, body.MaxChain))
		}
	case "forgets":
		e.forget()
	case "caches":
		return strconv.Itoa(e.Live().CachedBlocks)
	default:
		return r.roleStep(name, verb, rest)
	}
	return want
}

func statusName(s pairs.Status) string {
	return []string{pairs.Proven: "proven", pairs.Trial: "trial", pairs.Busy: "busy", pairs.NoReuse: "none"}[s]
}
