package fleet

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet/pairs"
	"carryover/upstream/fleet/prefixindex"
)

// Steps of scripts are separated by semicolons. Those of the fleet:
//
//	add, fake NAME...     adds instances that have answered; fake ones can be asked for their metrics (harness_test.go)
//	set NAME...           has these instances only
//	tell ID               all engines were read, with this incarnation
//	pass TIME             moves the clock on
//	limit N               attempts per engine
//	turn WORD...          what picks know from here on: tokens=N chain=CHAIN key=KEY, holds=p0.1:TOKENS and notes= of incarnations
//	freed N M             OnFreed was called N times since, the last time with M attempts in flight
//	holders N, away N     engines that may hold blocks; quarantines of engines that are gone
//	marks N, indexed N    places in prompts that engines hold; incarnations that have computed prompts
//	logged N TEXT         a text was logged N times
//
// A step of an engine or an incarnation is its name (d0, d0.1), a verb, and what the verb takes or what is wanted. A role (p, d) can pick.
type scripts map[string]string

func (s scripts) run(t *testing.T) {
	t.Helper()
	for name, script := range s {
		t.Run(name, func(t *testing.T) { newRig(t).play(script) })
	}
}

// play plays a script.
func (r *rig) play(script string) {
	r.t.Helper()
	for step := range strings.SplitSeq(script, ";") {
		words := strings.Fields(step)
		want := strings.Join(words[1:], " ")
		got := want
		n, _ := strconv.Atoi(append(words, "")[1])
		switch words[0] {
		case "add":
			r.named(words[1:]...)
		case "fake":
			for _, name := range words[1:] {
				r.fake(name)
			}
		case "set":
			var set []upstream.Instance
			for _, name := range words[1:] {
				set = append(set, *r.instance(name))
			}
			r.Set(set)
		case "tell":
			for e := range r.members.Load().all {
				r.tells(e, want)
			}
		case "pass":
			d, err := time.ParseDuration(want)
			if err != nil {
				r.t.Fatal(err)
			}
			r.pass(d)
		case "limit":
			r.SetMaxInFlight(n)
		case "turn":
			r.hint = r.turn(words[1:])
		case "freed":
			got = fmt.Sprint(r.frees.Swap(0), r.busy.Load())
		case "holders":
			got = strconv.Itoa(len(r.Holders.All()))
		case "away":
			got = strconv.Itoa(len(r.away))
		case "marks":
			got = strconv.Itoa(sizeOf(r.Prefixes).Marks)
		case "indexed":
			got = strconv.Itoa(sizeOf(r.Prefixes).Computed)
		case "logged":
			_, text, _ := strings.Cut(want, " ")
			got = fmt.Sprint(r.log.Count(text), " ", text)
		default:
			want = strings.Join(words[2:], " ")
			if len(words[0]) > 1 {
				got = r.step(words[0], words[1], words[2:])
			} else {
				got = r.roleStep(words[0], words[1], words[2:])
			}
		}
		if got != want {
			r.t.Errorf("%s: got %q; the log has\n%s", strings.TrimSpace(step), got, r.log.String())
		}
	}
}

func (r *rig) instance(name string) *upstream.Instance {
	return &r.instances[slices.IndexFunc(r.instances, func(i upstream.Instance) bool { return i.Name == name })]
}

func (r *rig) tells(e *Engine, id string) {
	i := tells(e, id)
	r.told[e.Name], r.told[e.Name+"."+id] = i, i
}

// turn reads what a pick knows. A chain 1x5+2x3 has five pieces that begin in way 1 and three that go on in way 2.
func (r *rig) turn(words []string) (h Hint) {
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "tokens":
			h.Tokens, _ = strconv.Atoi(value)
		case "chain":
			h.Chain = chainOf(value).Chain
		case "key":
			h.Key = value
		case "holds":
			h.Holds = holdings(value)
		case "notes":
			h.PrefixHints = holdings(value)
		}
	}
	return h
}

func holdings(text string) (list []Holding) {
	for one := range strings.SplitSeq(text, ",") {
		of, tokens, _ := strings.Cut(one, ":")
		name, id, _ := strings.Cut(of, ".")
		n, _ := strconv.Atoi(tokens)
		list = append(list, Holding{name, id, n})
	}
	return list
}

// chainOf is a prompt that begins in one way and goes on in another, with as many tokens as such text has. After a slash is the size of its
// blocks.
func chainOf(text string) prefixindex.ComputedPrompt {
	var begun, length, on, more, size int
	chain, block, sized := strings.Cut(text, "/")
	_, _ = fmt.Sscanf(chain, "%dx%d+%dx%d", &begun, &length, &on, &more)
	p := promptOf(begun, length, on, more)
	if size, _ = strconv.Atoi(block); sized {
		p.BlockSize = size
	}
	return p
}

// chain is that of a prompt that has begun in some way and gone on in another.
func chain(begun, length int, on, more int) (hashes []uint64) {
	for i := range length {
		hashes = append(hashes, uint64(begun)<<32|uint64(i))
	}
	for i := range more {
		hashes = append(hashes, uint64(on)<<32|1<<31|uint64(i))
	}
	return hashes
}

// promptOf is such a prompt, with as many tokens as its text has.
func promptOf(begun, length int, on, more int) prefixindex.ComputedPrompt {
	p := prefixindex.ComputedPrompt{Chain: chain(begun, length, on, more), BlockSize: 16, Bytes: (length + more) * body.ChainPiece}
	for i := range (length + more) * prefixindex.TokensPerPiece {
		token := begun<<16 | i
		if i >= length*prefixindex.TokensPerPiece {
			token = on<<24 | i
		}
		p.IDs = append(p.IDs, uint32(token))
	}
	return p
}

// told says what a policy was told of each candidate: its name, attempts (+1), tokens of the conversation (:300), pieces of the prompt (/5),
// expected time (~1s), and whether all its pairs are stopped (!).
func (r *rig) policyWasTold(role upstream.Role) string {
	var all []string
	for _, e := range r.Engines(role) {
		c, is := r.seen.candidates[e.Name]
		if !is {
			continue
		}
		text := e.Name
		for mark, n := range []int{c.InFlight, c.Holds, c.Prefix} {
			if n > 0 {
				text += fmt.Sprint("+:/"[mark:mark+1], n)
			}
		}
		if d := time.Duration(c.Delay).Round(time.Millisecond); d > 0 {
			text += fmt.Sprint("~", d)
		}
		if c.Stopped {
			text += "!"
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

func but(exclude ...string) func(*Engine) bool {
	return func(e *Engine) bool { return slices.Contains(exclude, e.Name) }
}

// roleStep does a step of a role: a pick with "but NAME..." without these engines, or a look at its engines.
func (r *rig) roleStep(subject, verb string, rest []string) string {
	role, want := roleOf(subject), strings.Join(rest, " ")
	_, except, _ := strings.Cut(want+" ", "but ")
	exclude := but(strings.Fields(except)...)
	if len(subject) > 1 {
		exclude = func(e *Engine) bool { return e.Name != subject }
	}
	done := func() {}
	var e *Engine
	var err error
	switch hint := r.hint; verb {
	case "up":
		return strconv.Itoa(r.Up(role))
	case "saw": // the last time
		return r.policyWasTold(role)
	case "has", "drains":
		engines := r.Engines(role)
		if verb == "drains" {
			engines = r.Draining()
		}
		var names []string
		for _, e := range engines {
			names = append(names, e.Name)
		}
		return strings.Join(names, " ")
	case "chooses", "weighs":
		e, err = r.Choose(role, hint, exclude)
	case "picks", "sees":
		e, done, err = r.Pick(role, hint, exclude)
	case "begins":
		hint.AllowQuarantined = true
		if e, done, err = r.Pick(role, hint, exclude); err == nil {
			r.ends[e.Name] = append(r.ends[e.Name], done)
			done = func() {}
		}
	default:
		return want
	}
	got := map[error]string{upstream.ErrNoInstance: "none", upstream.ErrBusy: "busy", upstream.ErrNoModel: "no-model"}[err]
	if err == nil {
		got = e.Name
		done()
	}
	if verb == "sees" || verb == "weighs" {
		got = r.policyWasTold(role)
	}
	if except != "" {
		got += " but " + strings.TrimSpace(except)
	}
	return got
}

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
		e.Broke()
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
			"fresh": e.Fresh() == i, "shown": e.Last() == i && e.last.Load() == i, "kept": kept != nil && (i == nil || kept == i), "alive": i.Known() && i.Alive(r.t.Context()),
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
			i.computed.Record(chain(10+n, body.MaxChain, 0, 0))
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
