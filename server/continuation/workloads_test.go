package continuation

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/upstream/body"
)

// Workloads without engines: what tickets pin, and what prefill computes, by virtual time.

// talk is one turn and its answer.
type talk struct {
	at             time.Duration // of its turn, which is answered at once
	kind           Kind
	key            int
	earlier        int    // key of the answer that it continues, 0 for none
	prompt, answer int    // tokens
	known          int    // tokens of the prompt that the turn before left, prompt and answer
	text           uint64 // the conversation or the single prompt that a text completion belongs to, 0 for chats
	of             int    // which workload of the mixed one it belongs to
}

// logNormal draws a time around a median.
func logNormal(draw *rand.Rand, median time.Duration, sigma float64) time.Duration {
	return time.Duration(float64(median) * math.Exp(sigma*draw.NormFloat64()))
}

// workload says when conversations begin and how they go on.
type workload struct {
	name  string
	every time.Duration // between two beginnings, in the mean
	begin func(draw *rand.Rand) talk
	grow  func(draw *rand.Rand, t *talk) // makes the next turn of a conversation
}

// opening begins conversations of a kind: a prompt and an answer of so many tokens and more. Texts have no messages and no ids, and share one of
// eight templates, so that nothing but their prompts tells them apart.
func opening(kind Kind, prompt, more, answer, longer int) func(*rand.Rand) talk {
	return func(draw *rand.Rand) talk {
		t := talk{prompt: prompt + draw.IntN(more), answer: answer + draw.IntN(longer), kind: kind}
		if kind.API == body.Text {
			t.text = draw.Uint64()
		}
		return t
	}
}

func workloads() []workload {
	oneShot := workload{name: "one-shot", every: 400 * time.Millisecond, begin: opening(Kind{}, 400, 1200, 50, 300)}
	says := func(draw *rand.Rand, t *talk) { t.prompt, t.answer = t.known+20+draw.IntN(80), 150+draw.IntN(300) }
	chat := workload{name: "chat", every: 2 * time.Second, begin: opening(Kind{}, 300, 600, 150, 300),
		grow: func(draw *rand.Rand, t *talk) { says(draw, t); t.kind.FollowUp = true },
	}
	agent := workload{name: "agent", every: 8 * time.Second, begin: opening(Kind{Tools: true, ToolCalls: true}, 4000, 4000, 60, 120),
		grow: func(draw *rand.Rand, t *talk) {
			t.prompt, t.answer = t.known+100+draw.IntN(600), 60+draw.IntN(120)
			t.kind = Kind{Tools: true, FollowUp: true, ToolCalls: draw.Float64() < 0.93}
		},
	}
	mixed := workload{name: "mixed", every: 1500 * time.Millisecond}
	all := []workload{oneShot, chat, agent}
	mixed.begin = func(draw *rand.Rand) talk {
		which := []int{0, 0, 0, 0, 1, 1, 2}[draw.IntN(7)]
		t := all[which].begin(draw)
		t.of = which
		return t
	}
	mixed.grow = func(draw *rand.Rand, t *talk) { all[t.of].grow(draw, t) }
	text := workload{name: "text", every: 4 * time.Second, begin: opening(Kind{API: body.Text}, 600, 600, 150, 300), grow: says}
	templates := workload{name: "templates", every: 1200 * time.Millisecond, begin: opening(Kind{API: body.Text}, 400, 1200, 50, 300)}
	return append(all, mixed, text, templates)
}

// continues draws whether and when a turn follows: a tool loop within seconds, a user within minutes.
func (t *talk) continues(draw *rand.Rand, w *workload) (time.Duration, bool) {
	switch {
	case w.name == "one-shot", w.name == "templates", w.name == "mixed" && t.of == 0:
		return 0, false
	case t.kind.ToolCalls:
		return logNormal(draw, 1500*time.Millisecond, 0.7), true
	case t.kind.Tools:
		return logNormal(draw, time.Minute, 0.8), draw.Float64() < 0.4
	default:
		return logNormal(draw, 30*time.Second, 0.8), draw.Float64() < 0.7
	}
}

// policy chooses what becomes of a ticket.
type policy func(l *Learner, k Kind, at time.Time, terms Terms) Choice

func learnt(l *Learner, k Kind, at time.Time, terms Terms) Choice {
	c := l.Curve("", k, at)
	return terms.Least(&c)
}

// fixed are the choices that do not learn.
func fixed() map[string]Choice {
	return map[string]Choice{
		"release at once": {End: Release}, "1 s": {Wait: time.Second, End: HandBack}, "5 s": {Wait: 5 * time.Second, End: HandBack},
		"15 s": {Wait: 15 * time.Second, End: HandBack}, "keep": {Wait: life, End: Keep},
	}
}

// figures are what a policy costs behind the warm-up.
type figures struct {
	pinned         float64 // token-seconds
	price          float64 // of what was pinned, in seconds of prefill
	prompt         int     // tokens of turns
	computed, legs int
}

func (f *figures) hits() float64 { return 1 - float64(f.computed)/float64(f.prompt) }
func (f *figures) prefill() float64 {
	return engines.PerToken.Seconds() * float64(f.computed+f.legs*(legTokens+engines.BlockSize))
}
func (f *figures) total() float64 { return f.price + f.prefill() }

var engines = Engines{PerToken: 100 * time.Microsecond, KVTokens: 1_500_000, BlockSize: 16}

// moment is what happens at a time: a turn, or the end of a wait.
type moment struct {
	at   time.Duration
	turn *talk
	ends int // key of the answer whose wait ends, if it is no turn
}

// releaseTakes is how long blocks stay pinned that a release or a hand-back is to free.
const releaseTakes = 200 * time.Millisecond

// run serves a workload for so long by a policy, and counts behind the warm-up.
func run(w workload, p policy, seed uint64, warm, long time.Duration) figures {
	s := simulation{
		draw: rand.New(rand.NewPCG(seed, 7)), w: &w, p: p, learner: New(life), warm: warm,
		held: map[int]ticket{}, found: map[int]int{},
	}
	for at := time.Duration(0); at < long; at += time.Duration(s.draw.ExpFloat64() * float64(w.every)) {
		t := w.begin(s.draw)
		s.comes(t, at, 0)
	}
	for len(s.queue) > 0 && s.queue[0].at < long {
		m := s.queue[0]
		s.queue = s.queue[1:]
		s.pass(m.at)
		if m.turn == nil {
			s.ends(m.ends)
		} else {
			s.serve(m.turn)
		}
	}
	return s.figures
}

// simulation is the state of a run.
type simulation struct {
	figures
	draw      *rand.Rand
	w         *workload
	p         policy
	learner   *Learner
	warm      time.Duration
	now       time.Duration
	queue     []moment // the next first
	keys      int
	held      map[int]ticket // by the answer's key
	found     map[int]int    // tokens that a continuation finds without a ticket
	pinnedNow int
}

func (s *simulation) push(m moment) {
	at, _ := slices.BinarySearchFunc(s.queue, m, func(a, b moment) int { return cmp.Compare(a.at, b.at) })
	s.queue = slices.Insert(s.queue, at, m)
}

type ticket struct {
	tokens, prompt int
	end            End
}

func (s *simulation) comes(t talk, at time.Duration, earlier int) {
	s.keys++
	t.at, t.key, t.earlier = at, s.keys, earlier
	s.push(moment{at: at, turn: &t})
}

// pass counts what is pinned until a time.
func (s *simulation) pass(at time.Duration) {
	if at > s.warm {
		amount := float64(s.pinnedNow) * (at - max(s.now, s.warm)).Seconds()
		s.pinned += amount
		s.price += s.terms(0, 0).Price * amount
	}
	s.now = at
}

func (s *simulation) terms(tokens, prompt int) Terms {
	e := engines
	e.PinnedTokens = s.pinnedNow
	t := TermsOf(e, tokens, prompt)
	t.HandsBack, t.Releases, t.Unlearnt = true, true, Fixed
	return t
}

// ends is the end of a wait. What was kept for its life is in prefill's cache as what was released.
func (s *simulation) ends(answer int) {
	t, ok := s.held[answer]
	if !ok {
		return // a turn has used it
	}
	delete(s.held, answer)
	s.pinnedNow -= t.tokens
	switch {
	case t.end == HandBack:
		s.found[answer] = t.tokens
		if s.now > s.warm {
			s.legs++
		}
	case s.draw.Float64() >= lostShare:
		s.found[answer] = t.prompt
	}
}

func (s *simulation) serve(t *talk) {
	found := s.found[t.earlier]
	if before, ok := s.held[t.earlier]; ok {
		s.pinnedNow -= before.tokens
		found = before.tokens
	}
	delete(s.held, t.earlier)
	delete(s.found, t.earlier)
	at := start.Add(s.now)
	left, prompt := key(t.key), body.Beginning{}
	switch {
	case t.text != 0:
		left, prompt = key(int(t.text%8)), body.Beginning{Bytes: t.prompt, Hash: t.text}
		s.learner.Asked(Turn{Key: left, GoesOn: func(b body.Beginning) bool { return b.Hash == t.text && b.Bytes < t.prompt }}, at)
	case t.kind.FollowUp:
		s.learner.Asked(Turn{Key: key(t.key), Earlier: []convcache.Key{key(t.earlier)}}, at)
	}
	if s.now > s.warm {
		s.prompt += t.prompt
		s.computed += t.prompt - found
	}
	s.learner.Answered("", "", t.kind, left, prompt, at)
	tokens := t.prompt + t.answer
	c := s.p(s.learner, t.kind, at, s.terms(tokens, t.prompt))
	s.held[t.key] = ticket{tokens: tokens, prompt: t.prompt, end: c.End}
	s.pinnedNow += tokens
	s.push(moment{at: s.now + c.Wait + releaseTakes, ends: t.key})
	if after, more := t.continues(s.draw, s.w); more {
		next := *t
		next.known = tokens
		s.w.grow(s.draw, &next)
		s.comes(next, s.now+after, t.key)
	}
}

// The learnt choice is never worse than the best fixed one, by more than a tenth, in what is pinned, what is reused and what is computed. The
// best one costs least in all.
func TestWorkloads_LearntAgainstFixed(t *testing.T) {
	for _, w := range workloads() {
		serve := func(p policy) figures { return run(w, p, 1, 20*time.Minute, time.Hour) }
		var best figures
		name, learnt := "", serve(learnt)
		for fixed, choice := range fixed() {
			if f := serve(func(*Learner, Kind, time.Time, Terms) Choice { return choice }); name == "" || f.total() < best.total() {
				name, best = fixed, f
			}
		}
		figures := fmt.Sprintf("%s: learnt has %.3f million token-seconds pinned, %.2f%% hits, %.1f s of prefill, %.1f s in all; %s has %.3f, %.2f%%, %.1f and %.1f", w.name,
			learnt.pinned/1e6, 100*learnt.hits(), learnt.prefill(), learnt.total(), name, best.pinned/1e6, 100*best.hits(), best.prefill(), best.total())
		if t.Log(figures); learnt.pinned > 1.1*best.pinned || learnt.hits() < 0.9*best.hits() || learnt.prefill() > 1.1*best.prefill() || learnt.total() > 1.02*best.total() {
			t.Error("learnt is worse than the best fixed one")
		}
	}
}
