package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"carryover/cmd/carryover/testrig"
	"carryover/convcache"
	"carryover/convcache/redistest"
	"carryover/server"
	"carryover/upstream/vllmsim"
)

// party says the same words as the others, in a scope of its own.
type party struct {
	name    string
	header  http.Header
	members object
	names   map[string]bool // of its conversations, as operators see them
}

// parties are the one whose tickets are there first, and others that differ from it in one part of the scope.
func parties() (first *party, others []*party) {
	make := func(name, tenant string, members object) *party {
		return &party{name: name, header: http.Header{"X-Tenant": {tenant}}, members: members, names: map[string]bool{}}
	}
	return make("the first", "a", object{"model": "sim"}), []*party{
		make("another tenant", "b", object{"model": "sim"}),
		make("another model", "a", object{"model": "sim-too"}),
		make("another salt", "a", object{"model": "sim", "cache_salt": "of another"}),
	}
}

// scoped is a program whose parties converse without ids.
type scoped struct {
	*rig
	log   *writes
	turns int
	by    map[string]*party // turns
}

// ask takes a turn of a party and returns its answer and the conversation's name for operators.
func (s *scoped) ask(t *testing.T, p *party, messages speech) *answered {
	t.Helper()
	s.turns++
	name := fmt.Sprintf("scoped-%d", s.turns)
	s.by[name] = p
	header := p.header.Clone()
	header.Set("X-Request-Id", name)
	body := maps.Clone(p.members)
	body["messages"], body["max_tokens"] = messages, 100
	a, err := s.post(t.Context(), "/v1/chat/completions", header, encode(body), unwatched)
	if err != nil || a.status != http.StatusOK {
		t.Fatalf("%s, turn %s: %v, %+v", p.name, name, err, a)
	}
	return a
}

// learn has the program learn the shapes of requests and try the pair, in scopes of which no party has any.
func (s *scoped) learn(t *testing.T, models ...string) {
	t.Helper()
	for _, model := range models {
		p := &party{name: "learning", header: http.Header{"X-Tenant": {"learning"}}, members: object{"model": model, "conversation_id": "learning"}, names: map[string]bool{}}
		h := &history{}
		if !testrig.Eventually(func() bool {
			h.messages = append(h.messages, question(longText(len(h.messages))))
			a := s.ask(t, p, h.messages)
			h.messages = append(h.messages, a.assistant())
			return a.hit()
		}) {
			t.Fatal("nothing was learnt")
		}
	}
}

// Nobody gets anything by saying the words that another tenant has said, or that were said to another model or under another cache_salt:
// neither a ticket, nor a note, nor a figure, nor a name that both have.
func TestByContent_EqualWordsInOtherScopesShareNothing(t *testing.T) {
	for _, redis := range []bool{false, true} {
		for _, handing := range []bool{false, true} {
			t.Run(fmt.Sprintf("redis %v, hand-back %v", redis, handing), func(t *testing.T) {
				s := startScoped(t, redis, handing)
				first, others := parties()
				s.learn(t, "sim", "sim-too")
				s.converse(t, first, others)
				s.verifyNames(t, append(others, first))
			})
		}
	}
}

func startScoped(t *testing.T, redis, handing bool) *scoped {
	t.Helper()
	cfg := vllmsim.DefaultConfig()
	cfg.OutputTokenIDs, cfg.Models = true, []string{"sim", "sim-too"}
	args := slices.Concat([]string{
		"--prefill", testrig.StartInstance(t, cfg, "").URL(), "--decode", testrig.StartInstance(t, cfg, "").URL(),
		"--tenant-header", "X-Tenant", "--release", "off",
	}, byContent)
	if redis {
		args = append(args, "--redis-url", "redis://"+redistest.Start(t).Addr())
	}
	if handing { // what was handed back is in prefill's cache, which tenants of one salt share: see docs/security.md
		args = append(args, "--hand-back", "now", "--tenant-salt")
	} else {
		args = append(args, "--hand-back", "off")
	}
	r, log := startProgram(t, []string{testrig.ReplicaSecret}, args...)
	return &scoped{rig: r, log: log, by: map[string]*party{}}
}

// converse has the first take a turn, the others the turn behind it, and then all the next of their own.
func (s *scoped) converse(t *testing.T, first *party, others []*party) {
	t.Helper()
	h := history{messages: speech{question(longText(31))}}
	opening := s.ask(t, first, h.messages)
	if !strings.HasPrefix(noHit(opening.reuse()), "miss;reason=first_turn") {
		t.Errorf("%s, turn 1: %q", first.name, opening.reuse())
	}
	h.messages = append(h.messages, opening.assistant(), question(longText(32)))
	answers := map[*party]*answered{}
	for _, p := range others {
		a := s.ask(t, p, h.messages)
		if !strings.HasPrefix(noHit(a.reuse()), "miss;reason=nothing_stored") {
			t.Errorf("%s, turn 2, which only the first has begun: %q, want nothing stored", p.name, a.reuse())
		}
		answers[p] = a
	}
	everybody := append(slices.Clone(others), first)
	if answers[first] = s.ask(t, first, h.messages); !strings.HasPrefix(answers[first].reuse(), "hit;") {
		t.Errorf("%s, turn 2: %q, want a hit", first.name, answers[first].reuse())
	}
	for _, p := range everybody {
		a := s.ask(t, p, append(slices.Clone(h.messages), answers[p].assistant(), question(longText(33))))
		if !a.hit() {
			t.Errorf("%s, turn 3: %q, want a hit", p.name, a.reuse())
		}
	}
}

// verifyNames asserts that each party's turns have one name for operators, in the log and on the page, and that no two parties have the same.
func (s *scoped) verifyNames(t *testing.T, everybody []*party) {
	t.Helper()
	type seen struct{ Msg, Turn, Conversation, Tenant string }
	var lines []seen
	if !within(nemesisPatience, func() bool {
		lines = nil
		for line := range strings.Lines(s.log.String()) {
			var one seen
			if json.Unmarshal([]byte(line), &one) == nil && one.Msg == "turn" {
				lines = append(lines, one)
			}
		}
		return len(lines) == s.turns
	}) {
		t.Fatalf("%d turns are in the log, want %d", len(lines), s.turns)
	}
	_, body := s.get(t, s.operators+"/admin/turns?limit=1000")
	var page struct{ Turns []seen }
	if err := json.Unmarshal([]byte(body), &page); err != nil || len(page.Turns) != s.turns {
		t.Fatalf("the page has %d turns, want %d: %v", len(page.Turns), s.turns, err)
	}
	for _, one := range append(lines, page.Turns...) {
		s.by[one.Turn].names[one.Conversation] = true
	}
	of := map[string]string{}
	for _, p := range everybody {
		if len(p.names) != 1 || p.names[""] {
			t.Errorf("%s: the conversation has the names %q, want one", p.name, slices.Sorted(maps.Keys(p.names)))
		}
		for name := range p.names {
			if other, taken := of[name]; taken {
				t.Errorf("%s and %s have the name %q", p.name, other, name)
			}
			of[name] = p.name
			s.verifyAlone(t, p, name)
		}
	}
}

// verifyAlone asserts that who asks for a conversation by its name gets the turns of that party alone.
func (s *scoped) verifyAlone(t *testing.T, p *party, name string) {
	t.Helper()
	status, body := s.get(t, s.operators+"/admin/conversations/"+name)
	turns := regexp.MustCompile(`"turn":"([^"]+)"`).FindAllStringSubmatch(body, -1)
	if status != http.StatusOK || len(turns) == 0 {
		t.Fatalf("%s, by its name: %d %.300s", p.name, status, body)
	}
	for _, turn := range turns {
		if s.by[turn[1]] != p {
			t.Errorf("the conversation of %s has a turn of %s", p.name, s.by[turn[1]].name)
		}
	}
}

// What keeps equal words apart is the key: with one key for everybody another tenant gets the ticket.
func TestByContent_MutantOfOneKeyIsNoticed(t *testing.T) {
	cfg := vllmsim.DefaultConfig()
	cfg.OutputTokenIDs = true
	s := &scoped{by: map[string]*party{}, rig: startRig(t, rigConfig{
		cfg:   cfg,
		flags: slices.Concat([]string{"--tenant-header", "X-Tenant"}, byContent),
		replace: func(deps *server.Deps) {
			deps.Store = &tapped{Store: deps.Store, key: func() convcache.Key { return convcache.Key{1} }}
		},
	})}
	s.learn(t, "sim")
	first, others := parties()
	h := history{messages: speech{question(longText(31))}}
	h.messages = append(h.messages, s.ask(t, first, h.messages).assistant(), question(longText(32)))
	if a := s.ask(t, others[0], h.messages); !a.hit() {
		t.Errorf("X-KV-Reuse %q: the mutant does not work", a.reuse())
	}
}
