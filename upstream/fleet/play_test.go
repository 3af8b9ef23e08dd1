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
			must(r.t, err)
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

// chain has so many pieces of one way to begin or to go on.
func chain(way, length int) (hashes []uint64) {
	for i := range length {
		hashes = append(hashes, uint64(way)<<32|uint64(i))
	}
	return hashes
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
	shape, block, sized := strings.Cut(text, "/")
	_, _ = fmt.Sscanf(shape, "%dx%d+%dx%d", &begun, &length, &on, &more)
	p := prefixindex.ComputedPrompt{Chain: append(chain(begun, length), chain(-on, more)...), BlockSize: 16, Bytes: (length + more) * body.ChainPiece}
	if size, _ = strconv.Atoi(block); sized {
		p.BlockSize = size
	}
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
		r.t.Fatalf("no step is called %q", verb)
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
