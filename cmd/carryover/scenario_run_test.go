package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"carryover/upstream/vllmsim"
)

// play is one scenario while it runs.
type play struct {
	*rig
	scenario *scenario
	stream   bool
	asked    int
	branches map[string]*history
	seen     map[*vllmsim.Instance]int // requests that earlier steps have caused
	lastEnd  time.Time
}

// history is what a client would send again: messages, or the text of a prompt.
type history struct {
	messages []json.RawMessage
	prompt   string
}

func (h *history) clone() *history {
	return &history{messages: slices.Clone(h.messages), prompt: h.prompt}
}

func newPlay(t *testing.T, s *scenario, stream bool) *play {
	t.Helper()
	return &play{
		scenario: s, stream: stream,
		branches: map[string]*history{}, seen: map[*vllmsim.Instance]int{},
		rig: startRig(t, rigConfig{
			prefill: s.Engines.configs(t, rolePrefill), decode: s.Engines.configs(t, roleDecode),
			host: s.Engines.Host, flags: s.flags(), env: s.Env,
		}),
	}
}

func (p *play) run(t *testing.T) {
	t.Helper()
	for i, s := range p.scenario.Steps {
		ok := t.Run(fmt.Sprintf("step %d", i+1), func(t *testing.T) { p.step(t, s) })
		if !ok {
			break
		}
	}
	p.verify(t, pins{unused: p.scenario.Unused, leased: p.scenario.Leased})
	for role, fields := range p.scenario.Stats {
		total := p.sum(t, role)
		for name, want := range fields {
			if got, ok := total[name]; !ok || got != want {
				t.Errorf("%s %s: got %d, want %d", role, name, got, want)
			}
		}
	}
}

func (p *play) step(t *testing.T, s step) {
	t.Helper()
	switch {
	case s.Turn != "":
		p.turn(t, s)
	case s.AtOnce != nil:
		p.atOnce(t, s.AtOnce)
	default:
		p.act(t, s)
	}
}

// act does what is not a turn.
func (p *play) act(t *testing.T, s step) {
	t.Helper()
	each := func(on string, do func(*vllmsim.Instance) error) {
		role, index, single := strings.Cut(on, ".")
		for i, instance := range p.all(role) {
			if single && strconv.Itoa(i) != index {
				continue
			}
			if err := do(instance); err != nil {
				t.Fatalf("%s: %v", on, err)
			}
		}
	}
	restart := func(i *vllmsim.Instance) error { i.Restart(); return nil }
	switch {
	case s.Fault != "":
		fault := vllmsim.Fault{
			Kind: s.Fault, Count: s.Count, Events: s.Events, Status: s.FaultStatus, RetryAfter: s.After,
			Delay: s.Delay, Params: json.RawMessage(s.Params), Tickets: s.Tickets,
		}
		if s.Params == "" {
			fault.Params = nil
		}
		each(s.On, func(i *vllmsim.Instance) error { return i.SetFault(fault) })
	case s.Clear != "":
		each(s.Clear, func(i *vllmsim.Instance) error { return i.ClearFaults() })
		p.look() // as the prober would, at some moment of the next seconds
	case s.Restart != "":
		each(s.Restart, restart)
	case s.Between != "":
		hook := func(context.Context) { each(s.Between, restart) }
		p.between.once.Store(&hook)
	case s.Advance != "":
		each(s.Advance, func(i *vllmsim.Instance) error { i.Advance(s.By); return nil })
	case s.Expire > 0:
		<-time.After(time.Until(p.lastEnd.Add(s.Expire)))
	default:
		t.Fatal("step does nothing")
	}
	// An instance that went away has closed its connections; the program would find out
	// a moment later, in the middle of the next step or not.
	p.hangUp()
}

// request is one turn made ready.
type request struct {
	step   step
	from   *history // what the answer will be appended to
	body   []byte
	header http.Header
	id     string
	script string // what the answer must say, "" if that is open
}

// prepare builds the request of a step and makes its question part of the branch.
func (p *play) prepare(t *testing.T, s step) request {
	t.Helper()
	h := p.branches[s.Turn]
	if s.Fork != "" {
		h = p.branches[s.Fork].clone()
	}
	if h == nil {
		h = &history{}
	}
	p.branches[s.Turn] = h
	h.rewrite(s)
	p.asked++
	r := request{step: s, from: h, header: http.Header{}, id: fmt.Sprintf("turn-%d", p.asked)}
	ask := s.Ask
	if ask == "" {
		ask = "auto"
	}
	if p.scenario.API == "text" {
		r.script = h.askText(ask, p.asked)
	} else {
		r.script = h.askChat(ask, s.Tell, p.asked)
	}
	if s.Reply != "" {
		r.script = strings.TrimSuffix(s.Reply, "any")
	}
	for name, value := range s.Header {
		r.header.Set(name, value)
	}
	r.header.Set("X-Request-Id", r.id)
	r.body = p.body(s, h)
	return r
}

// rewrite changes what has been said before.
func (h *history) rewrite(s step) {
	if s.Cut > 0 {
		h.messages = h.messages[:min(s.Cut, len(h.messages))]
		h.prompt = h.prompt[:min(s.Cut, len(h.prompt))]
	}
	for at, message := range s.Edit {
		h.messages[at] = json.RawMessage(message)
	}
	if len(s.Swap) == 2 {
		a, b := s.Swap[0], s.Swap[1]
		h.messages[a], h.messages[b] = h.messages[b], h.messages[a]
	}
	for _, at := range slices.Backward(s.Drop) {
		h.messages = slices.Delete(h.messages, at, at+1)
	}
}

// askChat appends a question and returns what the simulated model will say.
func (h *history) askChat(ask, tell string, n int) (script string) {
	switch {
	case tell != "":
		for _, message := range gjson.Parse(tell).Array() {
			h.messages = append(h.messages, json.RawMessage(message.Raw))
		}
		return ""
	case ask == "none":
		return ""
	case ask == "auto":
		script = longText(n) + "."
		ask = "SAY " + script
	default:
		_, script, _ = strings.Cut(ask, "SAY ")
	}
	h.messages = append(h.messages, encode(map[string]string{"role": "user", "content": ask}))
	return script
}

// askText goes on with the prompt behind white space: no pre-tokeniser merges across
// such a border. A model that is told to SAY something says all that follows.
func (h *history) askText(ask string, n int) (script string) {
	switch {
	case ask == "none":
	case ask == "auto" && h.prompt == "":
		h.prompt = "SAY  " + longText(n)
	case ask == "auto":
		h.prompt += "\n" + longText(n)
	default:
		h.prompt += ask
	}
	_, script, _ = strings.Cut(h.prompt, "SAY ")
	return script
}

// longText is long enough for prefill to read it from decode: it computes fewer than
// 64 missing tokens by itself.
func longText(n int) string {
	words := strings.Fields("every quiet river carries the bright letter before morning and another patient sailor measures one frozen bridge while our humble clerk remembers that empty tower again")
	said := []string{"Entry", strconv.Itoa(n), "says", "that"}
	for i := range 70 {
		said = append(said, words[(i*5+n*(i%7+1))%len(words)])
	}
	return strings.Join(said, " ")
}

// body is the JSON of a request. Later members replace earlier ones in place; all keep
// the spelling and the order that the file gives them.
func (p *play) body(s step, h *history) []byte {
	type member struct {
		name string
		raw  []byte
	}
	members := []member{{"model", []byte(`"sim"`)}}
	if p.scenario.API == "text" {
		members = append(members, member{"prompt", encode(h.prompt)})
	} else {
		members = append(members, member{"messages", slices.Concat([]byte("["), bytes.Join(raws(h.messages), []byte(",")), []byte("]"))})
	}
	members = append(members, member{"temperature", []byte("0")}, member{"max_tokens", []byte("2000")}, member{"stream", encode(p.stream)})
	switch s.Conversation {
	case "":
		members = append(members, member{"conversation_id", []byte(`"main"`)})
	case "none":
	default:
		members = append(members, member{"conversation_id", encode(s.Conversation)})
	}
	for _, extra := range []string{p.scenario.Body, s.Body} {
		gjson.Parse(extra).ForEach(func(key, value gjson.Result) bool {
			at := slices.IndexFunc(members, func(m member) bool { return m.name == key.String() })
			if at < 0 {
				at = len(members)
				members = append(members, member{name: key.String()})
			}
			members[at].raw = []byte(value.Raw)
			return true
		})
	}
	body := []byte("{")
	for _, m := range members {
		if slices.Contains(s.Omit, m.name) {
			continue
		}
		if len(body) > 1 {
			body = append(body, ',')
		}
		body = append(append(append(body, encode(m.name)...), ':'), m.raw...)
	}
	return append(body, '}')
}

func raws(list []json.RawMessage) [][]byte {
	out := make([][]byte, len(list))
	for i, raw := range list {
		out[i] = raw
	}
	return out
}

func (p *play) path() string {
	if p.scenario.API == "text" {
		return "/v1/completions"
	}
	return "/v1/chat/completions"
}

// turn runs a step's request, once or several times at once, and checks it.
func (p *play) turn(t *testing.T, s step) {
	t.Helper()
	if s.Together > 0 {
		p.together(t, s)
		return
	}
	r := p.prepare(t, s)
	a := p.send(t, r)
	p.lastEnd = time.Now()
	p.check(t, r, a, true)
	p.remember(r, a)
}

// remember appends an answer to its branch.
func (p *play) remember(r request, a *answered) {
	if a == nil || a.status != http.StatusOK {
		return
	}
	if p.scenario.API == "text" {
		r.from.prompt += a.content
		return
	}
	r.from.messages = append(r.from.messages, a.assistant())
}

// together sends one request several times at once.
func (p *play) together(t *testing.T, s step) {
	t.Helper()
	first := p.prepare(t, s)
	requests := []request{first}
	for range s.Together - 1 {
		again := first
		p.asked++
		again.id = fmt.Sprintf("turn-%d", p.asked)
		again.header = first.header.Clone()
		again.header.Set("X-Request-Id", again.id)
		requests = append(requests, again)
	}
	hits := 0
	for i, a := range p.sendAll(t, requests) {
		p.check(t, requests[i], a, false)
		if strings.HasPrefix(a.reuse(), "hit;") {
			hits++
		}
		if i == 0 {
			p.remember(first, a)
		}
	}
	if s.Hits != nil && hits != *s.Hits {
		t.Errorf("hits of %d equal turns at once: got %d, want %d", s.Together, hits, *s.Hits)
	}
	p.forgetLegs()
}

// atOnce runs the turns of several branches at once.
func (p *play) atOnce(t *testing.T, steps []step) {
	t.Helper()
	var requests []request
	for _, s := range steps {
		requests = append(requests, p.prepare(t, s))
	}
	for i, a := range p.sendAll(t, requests) {
		p.check(t, requests[i], a, false)
		p.remember(requests[i], a)
	}
	p.forgetLegs()
}

func (p *play) sendAll(t *testing.T, requests []request) []*answered {
	t.Helper()
	answers := make([]*answered, len(requests))
	var group sync.WaitGroup
	for i, r := range requests {
		group.Go(func() { answers[i] = p.send(t, r) })
	}
	group.Wait()
	p.lastEnd = time.Now()
	return answers
}

// send runs one request; a client that leaves gets nil if it saw no status.
func (p *play) send(t *testing.T, r request) *answered {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	events, _ := strconv.Atoi(r.step.Leave)
	switch r.step.Leave {
	case rolePrefill, roleDecode:
		role, before := r.step.Leave, p.legsArrived(r.step.Leave)
		gone := make(chan struct{})
		defer func() { <-gone }()
		go func() {
			defer close(gone)
			// The leg counts once the instance has it; its fault keeps it there.
			eventually(func() bool { return p.legsArrived(role) > before })
			leave()
		}()
	case "between":
		hook := func(ctx context.Context) {
			leave()
			<-ctx.Done() // the server has noticed
		}
		p.between.once.Store(&hook)
	}
	a, err := p.post(ctx, p.path(), r.header, r.body, func(event int, _ []byte) {
		if event == events {
			leave()
		}
	})
	if err != nil && r.step.Leave == "" {
		t.Errorf("%s: %v", r.id, err)
	}
	return a
}
