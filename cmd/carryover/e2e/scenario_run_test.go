package e2e

import (
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

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
	"carryover/convcache/redistest"
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
	goOn     func()            // releases the hand-backs that are held
	scopes   map[string]string // of conversations, by their names for operators
	names    map[string]string // of the conversations of branches that their content names
}

func newPlay(t *testing.T, s *scenario, stream bool) *play {
	t.Helper()
	redis := ""
	if s.Redis {
		redis = redistest.Start(t).Addr()
	}
	return &play{
		scenario: s, stream: stream,
		branches: map[string]*history{}, seen: map[*vllmsim.Instance]int{}, scopes: map[string]string{}, names: map[string]string{},
		rig: startRig(t, rigConfig{
			prefill: s.Engines.configs(t, config.RolePrefill), decode: s.Engines.configs(t, config.RoleDecode),
			host: s.Engines.Host, flags: s.flags(), env: s.Env, server: s.settings, redis: redis, taught: !s.Learns && s.Engines.Connector == "",
			connector: s.Engines.Connector, entry: s.Engines.Entry, alone: s.Alone, admin: s.Admin,
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
	p.settleEngines(t)
	p.verifyPins(t, func() pins {
		leased := p.scenario.Leased
		if p.connector == config.ConnectorMooncake { // what decode has not read waits for the limit of Mooncake
			total := p.sum(config.RolePrefill)
			leased += total["capped"] - total["reads"] - total["releases"]
		}
		unused := p.scenario.Unused
		if left := p.atDecode("pins") - p.store.unused(); p.scenario.Fewer && left < unused {
			unused = left
		}
		return pins{unused: unused, leased: leased}
	})
	p.verifyConnector(t)
	for note, want := range p.scenario.Said {
		if n := p.turns.count(note); n != want {
			t.Errorf("the log says %q %d times, want %d", note, n, want)
		}
	}
	for _, stat := range p.wrongStats() {
		t.Error(stat)
	}
	if p.scenario.Spread && p.atDecode("used") < 2 {
		t.Error("all turns went to one decode instance")
	}
	if n, want := p.proxy.Server.Counts().Stranded, p.scenario.Stranded; want != nil && n != *want {
		t.Errorf("stranded hand-overs: got %d, want %d", n, *want)
	}
}

// wrongStats are the statistics that are not as wanted.
func (p *play) wrongStats() (all []string) {
	for role, fields := range p.scenario.Stats {
		total := p.sum(role)
		for name, want := range fields {
			if got, ok := total[name]; !ok || got != want {
				all = append(all, fmt.Sprintf("%s %s: got %d, want %d", role, name, got, want))
			}
		}
	}
	return all
}

// settleEngines waits until the engines of a connector have nothing left to do, and their statistics are as wanted.
func (p *play) settleEngines(t *testing.T) {
	t.Helper()
	if p.connector == "" {
		return
	}
	testrig.Eventually(func() bool {
		return len(p.wrongStats()) == 0 && (p.connector == config.ConnectorLMCache || p.sum("")["running"] == 0)
	})
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
	if s.AtLeg {
		s.AtLeg = false
		p.between.atLeg(func() { p.act(t, s) })
		return
	}
	switch {
	case s.Fault != "":
		fault := vllmsim.Fault{
			Kind: s.Fault, Count: s.Count, Events: s.Events, Status: s.FaultStatus, RetryAfter: s.After,
			Delay: s.Delay, Params: json.RawMessage(s.Params), Tickets: s.Tickets, Handovers: s.Handovers, HandBacks: s.HandBacks, Route: s.Route, Factor: s.Factor,
		}
		if s.Params == "" {
			fault.Params = nil
		}
		each(s.On, func(i *vllmsim.Instance) error { p.setFault(t, i, fault); return nil })
	case s.Clear != "":
		each(s.Clear, func(i *vllmsim.Instance) error { p.clearFaults(t, i); return nil })
		p.look() // as the prober would, at some moment of the next seconds
	case s.Restart != "":
		each(s.Restart, restart)
	case s.Between != "":
		p.between.act(func(context.Context) { each(s.Between, restart) })
	case s.Sleep != "":
		each(s.Sleep, func(i *vllmsim.Instance) error { i.SleepAndWake(); return nil })
	case s.Close != "":
		each(s.Close, (*vllmsim.Instance).Close)
	case s.Hold != "":
		p.goOn = p.hold(vllmsim.HandBackPoint(s.Hold))
	case s.Release != "":
		p.goOn()
		p.goOn = nil
	case s.Reload != "":
		p.reload(t, s.Reload)
	case s.Pinned != nil:
		p.wantPinned(t, *s.Pinned)
	case s.Settle != nil:
		p.handedBack(t, ends{s.Settle[0], s.Settle[1], s.Settle[2]})
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

// was reports whether an instance of a role was asked for a path.
func (p *play) was(role, path string) bool {
	return slices.ContainsFunc(p.all(role), func(i *vllmsim.Instance) bool {
		return slices.ContainsFunc(i.Requests(), func(q vllmsim.RecordedRequest) bool { return q.Path == path })
	})
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
	if p.remember(r, a); p.goOn != nil {
		p.held(t)
	}
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
	if s.Hits != nil {
		p.between.gather(s.Together) // none comes so late that it finds the ticket of another
	}
	hits := 0
	for i, a := range p.sendAll(t, requests) {
		p.check(t, requests[i], a, false)
		if a.hit() {
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
	role, stat, _ := strings.Cut(r.step.Leave, ".")
	switch role {
	case config.RolePrefill, config.RoleDecode:
		before := p.legsArrived(role)
		gone := make(chan struct{})
		defer func() { <-gone }()
		go func() {
			defer close(gone)
			// The leg counts once the instance has it; its fault keeps it there.
			if !testrig.Eventually(func() bool {
				return stat == "" && p.legsArrived(role) > before || p.sum(role)[stat] > 0 || p.was(role, stat)
			}) {
				t.Error("the moment at which the client was to leave did not come")
			}
			leave()
		}()
	case "between":
		p.between.act(func(turn context.Context) {
			leave()
			<-turn.Done() // the server has noticed
		})
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
