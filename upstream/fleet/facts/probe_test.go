package facts

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/vllmsim"
)

func TestProbeIDs_OfSimulatedEngines(t *testing.T) {
	for _, row := range []struct {
		name string
		ids  bool
		want Finding
	}{{"uses ids", true, Yes}, {"ignores ids", false, No}} {
		sim, e := newRig(t).simulate(upstream.RoleDecode, func(c *vllmsim.Config) { c.PromptTokenIDs = row.ids })
		s := tells(e, "1")
		if got := s.Capability.UsesIDs(body.Chat); got != Unknown {
			t.Errorf("%s: known before the probe as %d", row.name, got)
		}
		for range 2 {
			if got := s.Capability.Probe(t.Context(), body.Chat, ""); got != row.want || s.Capability.UsesIDs(body.Chat) != row.want {
				t.Errorf("%s: got %d, known %d, want %d", row.name, got, s.Capability.UsesIDs(body.Chat), row.want)
			}
		}
		if got, want := paths(sim), []string{"/v1/models", body.Chat.Path()}; !slices.Equal(got, want) {
			t.Errorf("%s: asked %v, want %v", row.name, got, want)
		}
		if got := tells(e, "2").Capability.UsesIDs(body.Chat); got != Unknown {
			t.Errorf("%s: the next start is known as %d", row.name, got)
		}
	}
}

// probed is an incarnation that answers the probe as told, and what it was asked.
type probed struct {
	*incarnation
	rig    *rig
	models string // what it lists, "" for a 404

	mu     sync.Mutex // guards what follows
	answer http.HandlerFunc
	bodies []string
	keys   []string
	api    body.API // whose endpoint it has, of those that are probed
}

// newProbed returns an incarnation of an engine that is asked with a key of ours.
func newProbed(t *testing.T, key, models string, answer http.HandlerFunc) *probed {
	t.Helper()
	p := &probed{rig: newRig(t), models: models, answer: answer}
	client := upstream.NewClient(upstream.ClientConfig{DialTimeout: 2 * time.Second, Key: key})
	t.Cleanup(client.Close)
	p.rig.Client = client
	e := p.rig.engine(upstream.RolePrefill, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == p.serves():
		case r.URL.Path == "/v1/models" && p.models != "":
			answerJSON(p.models)(w, r)
			return
		default:
			http.NotFound(w, r)
			return
		}
		body, _ := io.ReadAll(r.Body)
		p.mu.Lock()
		p.bodies = append(p.bodies, string(body))
		p.keys = append(p.keys, r.Header.Get("Authorization"))
		act := p.answer
		p.mu.Unlock()
		act(w, r)
	})
	p.incarnation = tells(e, "1")
	return p
}

func (p *probed) asked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.bodies)
}

// serves is the path that the engine has of those that are probed.
func (p *probed) serves() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.api.Path()
}

// serve has it answer at an API's path.
func (p *probed) serve(api body.API) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.api = api
}

// then replaces what the engine answers.
func (p *probed) then(answer http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = answer
}

const refusesIDs = `{"error":{"message":"m","param":"` + idsMember + `"}}`

// What recordings and other answers say, and when the next caller makes another probe.
func TestProbeIDs_WhatAnAnswerSays(t *testing.T) {
	refusal := recorded(t, "14-bad-prompt-token-ids.json")
	for _, row := range []struct {
		name  string
		act   http.HandlerFunc
		want  Finding
		again bool // at once
	}{
		{"recorded refusal", answers(400, refusal), Yes, false},
		{"flat error body of old engines", answers(400, `{"object":"error","message":"m","param":"`+idsMember+`"}`), Yes, false},
		{"ids that the engine itself reads (0.28)", answers(400, `{"error":{"message":"Token id -1 is out of vocabulary","param":null}}`), Yes, false},
		{"an answer", answers(200, `{}`), No, false},
		{"another member", answers(400, `{"error":{"param":"messages"}}`), Unknown, false},
		{"the member with another status", answers(500, refusal), Unknown, false},
		{"no JSON", answers(400, `no`), Unknown, false},
		{"nested without end", answers(400, strings.Repeat("[", 12<<20)), Unknown, false},
		{"overloaded", answers(503, `{}`), Unknown, false},
		{"broken connection", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, Unknown, false},
		{"too late", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, Unknown, false},
		{"an unknown model", answers(404, recorded(t, "15-unknown-model.json")), Unknown, true},
		{"unauthorized", answers(401, `{"error":"Unauthorized"}`), Unknown, true},
		{"forbidden", answers(403, `{}`), Unknown, true},
		{"rate limit", answers(429, `{}`), Unknown, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := newProbed(t, "", "", row.act)
			if row.name == "too late" {
				p.Capability.limit = time.Second // the last question is answered in time
			}
			probe := func() Finding { return p.Capability.Probe(t.Context(), body.Chat, "") }
			if got := probe(); got != row.want {
				t.Errorf("got %d, want %d", got, row.want)
			}
			p.rig.pass(idsRetry - 1)
			if probe(); (p.asked() == 2) != row.again {
				t.Errorf("asked %d times at once, want another: %t", p.asked(), row.again)
			}
			before := p.asked()
			p.rig.pass(1)
			if probe(); (p.asked() > before) != (row.want == Unknown) {
				t.Errorf("asked %d times after 30 s", p.asked())
			}
			p.then(answers(400, refusesIDs))
			p.rig.pass(idsRetry)
			if got, want := probe(), max(row.want, Yes); got != want {
				t.Errorf("when the engine answers: got %d, want %d", got, want)
			}
		})
	}
}

// The probe is our own: it names the model that the instance lists first.
func TestProbeIDs_NamesTheModelListedFirst(t *testing.T) {
	const head = `{"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,"prompt_token_ids":[1,-1]},"max_tokens":1,"messages":[{"content":"x","role":"user"}]`
	for models, want := range map[string]string{
		`{"object":"list","data":[{"id":"base"},{"id":"adapter"}]}`: head + `,"model":"base"}`,
		`{"data":[]}`:                head + "}",
		`{"data":[{"id":1}]}`:        head + "}",
		``:                           head + "}",
		`nonsense`:                   head + "}",
		strings.Repeat("[", 512<<10): head + "}",
	} {
		p := newProbed(t, "ours", models, answers(200, `{}`))
		if got := p.Capability.Probe(t.Context(), body.Chat, "Bearer client"); got != No {
			t.Errorf("%.40s: got %d, want No", models, got)
		}
		if p.asked() != 1 || p.bodies[0] != want || p.keys[0] != "Bearer ours" {
			t.Errorf("%.40s: sent\n     %s with %q\nwant %s", models, p.bodies, p.keys, want)
		}
	}
}

func TestProbeIDs_OneAtATime(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	p := newProbed(t, "", "", func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-leave
		answerJSON(`{}`)(w, r)
	})
	found := make(chan Finding, 3) // the results
	probe := func(ctx context.Context) { found <- p.Capability.Probe(ctx, body.Chat, "") }
	first, hangUp := context.WithCancel(t.Context())
	go probe(first)
	<-entered
	hangUp() // which ends nothing but its own wait
	if got := <-found; got != Unknown {
		t.Errorf("the caller that left: got %d, want Unknown", got)
	}
	p.Capability.Begin(t.Context()) // does not wait
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if got := p.Capability.Probe(gone, body.Chat, ""); got != Unknown {
		t.Errorf("the caller that came and left: got %d, want Unknown", got)
	}
	for range 2 {
		go probe(t.Context())
	}
	close(leave)
	for range 2 {
		if got := <-found; got != No {
			t.Errorf("the caller that waited: got %d, want No", got)
		}
	}
	if p.asked() != 1 {
		t.Errorf("asked %d times, want once", p.asked())
	}
}

// Where our own key opens nothing, a client's may; one that does not is no hindrance
// to the next.
func TestProbeIDs_AClientsKeyWhereOursIsRefused(t *testing.T) {
	refuses := func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Authorization") {
		case "Bearer good":
			answers(400, refusesIDs)(w, r)
		case "Bearer broken":
			answers(500, `{}`)(w, r)
		default:
			answers(401, `{}`)(w, r)
		}
	}
	p := newProbed(t, "", "", refuses)
	p.Capability.Begin(t.Context())
	for _, row := range []struct {
		key  string
		want Finding
	}{{"", Unknown}, {"Bearer bad", Unknown}, {"Bearer broken", Unknown}, {"Bearer good", Yes}, {"", Yes}, {"Bearer bad", Yes}} {
		if got := p.Capability.Probe(t.Context(), body.Chat, row.key); got != row.want {
			t.Errorf("with %q: got %d, want %d", row.key, got, row.want)
		}
	}
	before := p.asked()
	if p.Capability.Begin(t.Context()); p.asked() != before {
		t.Error("a start of which all is known was asked again")
	}
}

// What begins the probe of an incarnation, every few seconds, is not to pester an engine that
// does not let us in.
func TestProbeIDs_ThoseThatRefuseAreLeftToTheTurns(t *testing.T) {
	p := newProbed(t, "", "", answers(401, `{}`))
	p.Capability.Probe(t.Context(), body.Chat, "")
	leave := make(chan struct{})
	p.then(func(http.ResponseWriter, *http.Request) { <-leave })
	p.Capability.Begin(t.Context())
	p.Capability.mu.Lock()
	if n := len(p.Capability.open); n != 0 {
		t.Errorf("%d probes are under way, want none", n)
	}
	p.Capability.mu.Unlock()
	close(leave)
	if got := p.Capability.Probe(t.Context(), body.Chat, ""); got != No {
		t.Errorf("the next turn: got %d, want No", got)
	}
}

// defective makes every request with its context a defect: to connect is to look for values.
func defective(ctx context.Context) context.Context { return defect{context.WithoutCancel(ctx)} }

type defect struct{ context.Context }

func (defect) Value(any) any { panic("defect") }

func TestProbeIDs_ADefectIsAFailedProbe(t *testing.T) {
	p := newProbed(t, "", "", answers(200, `{}`))
	if got := p.Capability.Probe(defective(t.Context()), body.Chat, ""); got != Unknown || p.asked() != 0 {
		t.Errorf("got %d after %d probes, want Unknown after none", got, p.asked())
	}
}
