package e2e

import (
	"context"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
	"carryover/convcache/redistest"
	"carryover/server"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// What an incarnation of prefill leaves behind that computes other ids than it was sent. Between its wrong filing and its answer, which
// shows it, another turn reads its prefix cache: that turn's answer can't be helped. What comes behind the answer has to be right, whoever
// asks, and wherever the KV has got to by then.

// saidRisen is what the log says once of each rise of the epoch.
const saidRisen = "WARN a prefill has computed other ids than it was sent: tickets from before are given up, and legs have a cache_salt until their engines are restarted"

// poisoned is two replicas, of which one knows the incarnation of prefill that computes other ids, and the other knows another; both share
// Redis and a decode instance.
type poisoned struct {
	first, second *rig
	cfg           vllmsim.Config
	prompt        speech    // under which wrong KV is filed
	reader        speech    // the history of the turn that has read it
	retried       *answered // of the turn whose leg was answered with other ids
	before        int       // wrong reads that can't be helped
}

// startPoisoned has one turn read what was filed wrongly. meanwhile is run behind it, before the first replica knows.
func startPoisoned(t *testing.T, replace func(*server.Deps), meanwhile func(p *poisoned)) *poisoned {
	t.Helper()
	p := &poisoned{cfg: engineWith(`{"output_token_ids":true}`)}
	redis, flags := redistest.Start(t).Addr(), []string{"--release", "on"}
	p.first = startRig(t, rigConfig{cfg: p.cfg, redis: redis, replace: replace, flags: flags})
	p.second = startRig(t, rigConfig{
		prefill: []vllmsim.Config{p.cfg}, redis: redis, replace: replace, flags: append(flags, "--decode", p.first.decode[0].URL()),
	})
	p.second.look()
	for i, r := range []*rig{p.first, p.second} { // both know the shapes of requests, and their pair
		(&chatting{rig: r, id: "learns", asks: 10 * (i + 1)}).learnt(t)
	}
	victim := &chatting{rig: p.first, id: "victim", asks: 50}
	victim.learnt(t)
	p.first.setFault(t, p.first.prefill[0], vllmsim.Fault{Kind: vllmsim.FaultOtherIDs, Tickets: true, Count: 1})
	p.prompt = append(slices.Clone(victim.h.messages), says(victim.asks+1))
	p.first.between.act(func(context.Context) {
		a := p.first.askAs(t, "reader", p.prompt...)
		p.reader = append(slices.Clone(p.prompt), a.assistant())
		if meanwhile != nil {
			meanwhile(p)
		}
		p.before = p.wrong()
	})
	if p.retried = p.sends(t, p.first, "", "victim", p.prompt); noHit(p.retried.reuse()) != "miss;reason=retried_without_ticket" {
		t.Fatalf("X-KV-Reuse %q of the turn that prefill has computed wrongly", p.retried.reuse())
	}
	if p.before == 0 {
		t.Fatal("nothing was read wrongly: nothing is shown")
	}
	return p
}

// act has what follows the next prefill leg's answer be done before the program knows of it.
func (e *interposed) act(do func(turn context.Context)) {
	e.once.Store(&do)
}

// wrong counts what was read wrongly.
func (p *poisoned) wrong() int {
	return p.first.wrong() + p.second.wrong()
}

// sends sends a history as a turn of a conversation, none for "", of a tenant.
func (p *poisoned) sends(t *testing.T, r *rig, tenant, id string, messages speech) *answered {
	t.Helper()
	members := object{"model": "sim", "messages": messages, "max_tokens": 400}
	if id != "" {
		members["conversation_id"] = id
	}
	header := http.Header{}
	if tenant != "" {
		header.Set("Authorization", "Bearer "+tenant)
	}
	return r.must(t, "/v1/chat/completions", header, members)
}

// asks compares the answer with that of a lone instance, too.
func (p *poisoned) asks(t *testing.T, r *rig, tenant, id string, messages speech) *answered {
	t.Helper()
	want, err := alone(t.Context(), p.cfg, "/v1/chat/completions", object{"model": "sim", "messages": messages, "max_tokens": 400})
	noError(t, err)
	a := p.sends(t, r, tenant, id, messages)
	if err := same(a, want); err != nil {
		t.Errorf("tenant %q, conversation %q: %v", tenant, id, err)
	}
	return a
}

// settled waits until both replicas know that the epoch has risen.
func (p *poisoned) settled(t *testing.T) {
	t.Helper()
	for i, r := range []*rig{p.first, p.second} {
		if !testrig.Eventually(func() bool { return r.turns.count(saidRisen) > 0 }) {
			t.Fatalf("replica %d does not know", i)
		}
	}
}

// clean asks for what was filed wrongly in each way in which a client may get it, and ends the program.
func (p *poisoned) clean(t *testing.T) {
	t.Helper()
	for range 2 {
		for _, r := range []*rig{p.first, p.second} {
			if a := p.asks(t, r, "another", "", p.prompt); a.content != p.retried.content {
				t.Errorf("the turn that was run anew was told %q", p.retried.content)
			}
			p.asks(t, r, "", "fresh", p.prompt)
		}
	}
	p.first.stop()
	p.second.stop()
	if wrong := p.wrong(); wrong != p.before {
		t.Errorf("wrong reads: %d, want the %d that can't be helped: %v %v", wrong, p.before, p.first.sum(""), p.second.sum(config.RolePrefill))
	}
	for _, r := range []*rig{p.first, p.second} {
		r.saidNothing(t)
	}
}

// next is the reader's next turn.
func (p *poisoned) next() speech {
	return append(slices.Clone(p.reader), says(78))
}

// The other replica knows before it uses a ticket, whenever that is.
func TestQuarantine_TheOtherReplicaLooksFirst(t *testing.T) {
	t.Parallel()
	p := startPoisoned(t, unchanged, nil)
	if !testrig.Eventually(func() bool { return p.first.turns.count(saidRisen) > 0 }) { // it has told the others before
		t.Fatal("the epoch does not rise")
	}
	// What it says of its history is what the reader was told, right or not.
	if a := p.asks(t, p.second, "", "reader", p.next()); a.hit() {
		t.Errorf("X-KV-Reuse %q", a.reuse())
	}
	p.clean(t)
}

// The other replica uses that ticket before it can know: another incarnation of prefill has wrong KV, too.
func TestQuarantine_AnotherPrefillHasReadTheTicket(t *testing.T) {
	t.Parallel()
	p := startPoisoned(t, unchanged, func(p *poisoned) {
		if a := p.second.askAs(t, "reader", p.next()...); !a.hit() {
			t.Fatalf("X-KV-Reuse %q: nothing is shown", a.reuse())
		}
	})
	p.settled(t)
	p.asks(t, p.second, "another", "", p.next())
	p.clean(t)
}

// A replica that spells the host differently quarantines the instance, too.
func TestQuarantine_ReplicasSpellAHostDifferently(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t).Addr()
	first := startRig(t, rigConfig{cfg: engineWith(`{"output_token_ids":true}`), redis: redis})
	prefill := first.prefill[0]
	second := startRig(t, rigConfig{found: true, redis: redis, flags: []string{
		"--prefill", strings.Replace(prefill.URL(), "127.0.0.1", "localhost", 1), "--decode", first.decode[0].URL(),
	}})
	victim := &chatting{rig: first, id: "victim"}
	victim.learnt(t)
	(&chatting{rig: second, id: "other", asks: 20}).want(t, "miss;")
	first.setFault(t, prefill, vllmsim.Fault{Kind: vllmsim.FaultOtherIDs, Tickets: true, Count: 1})
	victim.want(t, "miss;reason=retried_without_ticket")
	if !testrig.Eventually(func() bool { return second.turns.count(logsQuarantine) > 0 }) {
		t.Error("the other replica does not quarantine it")
	}
	if _, body := second.get(t, second.base+"/readyz"); !strings.Contains(body, `"quarantined":1`) {
		t.Errorf("/readyz of the other replica: %s", body)
	}
	first.stop()
	second.stop()
	if first.wrong() != 0 {
		t.Errorf("wrong reads: %v", first.sum(""))
	}
}

// logsQuarantine is what the log of the replica says that has found a wrong answer.
const logsQuarantine = "ERROR prefill is quarantined until it is restarted"

// A turn whose prefill has read wrong KV is not given to decode once that is known: it is run anew, elsewhere, and its answer is right.
// One that decode has already leaves no ticket.
func TestQuarantine_TurnsInFlight(t *testing.T) {
	for name, decoding := range map[string]bool{"its hand-over is not sent": false, "its answer leaves no ticket": true} {
		t.Run(name, func(t *testing.T) {
			var r *rig
			reached := make(chan struct{})
			known := func() {
				if !testrig.Eventually(func() bool { return r.turns.count(logsQuarantine) > 0 }) {
					t.Error("prefill is not barred")
				}
			}
			var held atomic.Bool // the next decode leg waits
			r = startRig(t, rigConfig{
				cfg: engineWith(`{"output_token_ids":true}`),
				replace: func(deps *server.Deps) {
					deps.Legs = &decodeHeld{Legs: deps.Legs, held: &held, reached: reached, until: known}
				},
			})
			victim := r.talk("victim")
			victim.learnt(t)
			r.setFault(t, r.prefill[0], vllmsim.Fault{Kind: vllmsim.FaultOtherIDs, Tickets: true, Count: 1})
			prompt := append(slices.Clone(victim.h.messages), says(victim.asks+1))
			answered := make(chan *answered, 1) // one answer, read once
			r.between.act(func(context.Context) {
				if held.Store(decoding); !decoding {
					r.between.act(func(context.Context) {
						close(reached)
						known()
					})
				}
				go func() { answered <- r.askAs(t, "reader", prompt...) }()
				<-reached
			})
			a := victim.turn(t)
			reader := <-answered
			rec := r.turns.await(t, reader.header.Get("X-Request-Id"))
			before := r.wrong()
			if decoding {
				if rec.Stored != "quarantined" || rec.Retries != 0 {
					t.Errorf("stored %q after %d retries", rec.Stored, rec.Retries)
				}
			} else if said := reader.content; said != a.content || rec.Retries != 1 {
				t.Errorf("the reader was told %q after %d retries, want %q", said, rec.Retries, a.content)
			}
			c := &chatting{rig: r, id: "behind", asks: victim.asks - 1}
			c.h.messages = slices.Clone(prompt[:len(prompt)-1])
			c.turn(t)
			r.stop()
			if wrong := r.wrong(); wrong != before {
				t.Errorf("wrong reads: %d, want the %d that can't be helped: %v", wrong, before, r.sum(""))
			}
		})
	}
}

// decodeHeld has a decode leg that is answered wait before the program knows.
type decodeHeld struct {
	upstream.Legs
	held    *atomic.Bool
	reached chan struct{}
	until   func()
}

// Decode implements upstream.Legs.
func (h *decodeHeld) Decode(ctx context.Context, leg upstream.Leg, limits upstream.Limits) (*upstream.Stream, error) {
	stream, err := h.Legs.Decode(ctx, leg, limits)
	if h.held.Swap(false) {
		close(h.reached)
		h.until()
	}
	return stream, err
}

// The mutants of what keeps wrong KV from spreading: each takes one rule away, and the simulator must notice.
func TestQuarantineMutant_TheOracleSeesIt(t *testing.T) {
	t.Parallel()
	salt := regexp.MustCompile(`,?"cache_salt":"quarantine-[^"]*"`)
	for name, mutate := range map[string]func(*server.Deps){
		"as it is":                    unchanged,
		"an epoch that does not rise": func(deps *server.Deps) { deps.Shared = fixed{deps.Shared, math.MaxInt64} },
		"no salt for decode": func(deps *server.Deps) {
			deps.Legs = &legChanger{Legs: deps.Legs, decodeBody: func(body []byte) []byte { return salt.ReplaceAll(body, nil) }}
		},
		"replicas are told nothing": func(deps *server.Deps) { deps.Shared = fixed{deps.Shared, 0} },
	} {
		t.Run(name, func(t *testing.T) {
			p := startPoisoned(t, mutate, nil)
			switch name {
			case "an epoch that does not rise", "replicas are told nothing":
			default:
				p.settled(t)
			}
			p.sends(t, p.second, "", "reader", p.next())
			for _, r := range []*rig{p.first, p.second} {
				p.sends(t, r, "another", "", p.prompt)
			}
			p.first.stop()
			p.second.stop()
			if wrong := p.wrong(); (wrong > p.before) != (name != "as it is") {
				t.Errorf("wrong reads: %d, and %d before it was known", wrong, p.before)
			}
		})
	}
}

// fixed is an epoch that replicas don't share. The greatest can't rise.
type fixed struct {
	server.Shared
	epoch int64
}

// Epoch implements server.Shared.
func (f fixed) Epoch() int64 { return f.epoch }

// ShareEpoch implements server.Shared.
func (f fixed) ShareEpoch(context.Context, int64, bool) error { return nil }
