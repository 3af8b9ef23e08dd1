package upstream

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"carryover/upstream/vllmsim"
)

func TestCapability_ProbeOfSimulatedEngines(t *testing.T) {
	for _, row := range []struct {
		name string
		ids  bool
		want Finding
	}{{"uses ids", true, Yes}, {"ignores ids", false, No}} {
		sim, instance := simulate(t, RoleDecode, func(c *vllmsim.Config) { c.PromptTokenIDs = row.ids })
		c := NewCapability(newTestClient(t, ""))
		if got := c.Known(instance, "1"); got != Unknown {
			t.Errorf("%s: known before the probe as %d", row.name, got)
		}
		for range 2 {
			if got := c.Probe(t.Context(), instance, "1", ""); got != row.want || c.Known(instance, "1") != row.want {
				t.Errorf("%s: got %d, known %d, want %d", row.name, got, c.Known(instance, "1"), row.want)
			}
		}
		if got, want := paths(sim), []string{"/v1/models", Chat.Path()}; !slices.Equal(got, want) {
			t.Errorf("%s: asked %v, want %v", row.name, got, want)
		}
		if got := c.Known(instance, "2"); got != Unknown {
			t.Errorf("%s: the next start is known as %d", row.name, got)
		}
	}
}

// probed is an engine that answers the probe as told, and what it was asked.
type probed struct {
	instance *Instance
	models   string // what it lists, "" for a 404

	mu     sync.Mutex // guards what follows
	answer http.HandlerFunc
	bodies []string
	keys   []string
}

func newProbed(t *testing.T, models string, answer http.HandlerFunc) *probed {
	t.Helper()
	p := &probed{models: models, answer: answer}
	p.instance = engine(t, RolePrefill, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == Chat.Path():
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
	return p
}

func (p *probed) asked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.bodies)
}

// then replaces what the engine answers.
func (p *probed) then(answer http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = answer
}

func answers(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

const refusesIDs = `{"error":{"message":"m","param":"` + idsMember + `"}}`

// What recordings and other answers say, and when the next caller makes another probe.
func TestCapability_WhatAnAnswerSays(t *testing.T) {
	refusal := string(recorded(t, "14-bad-prompt-token-ids.json").Response.JSON)
	for _, row := range []struct {
		name  string
		act   http.HandlerFunc
		want  Finding
		again bool // at once
	}{
		{"recorded refusal", answers(400, refusal), Yes, false},
		{"flat error body of old engines", answers(400, `{"object":"error","message":"m","param":"`+idsMember+`"}`), Yes, false},
		{"an answer", answers(200, `{}`), No, false},
		{"another member", answers(400, `{"error":{"param":"messages"}}`), Unknown, false},
		{"the member with another status", answers(500, refusal), Unknown, false},
		{"no JSON", answers(400, `no`), Unknown, false},
		{"nested without end", answers(400, strings.Repeat("[", 12<<20)), Unknown, false},
		{"overloaded", answers(503, `{}`), Unknown, false},
		{"broken connection", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, Unknown, false},
		{"too late", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, Unknown, false},
		{"an unknown model", answers(404, string(recorded(t, "15-unknown-model.json").Response.JSON)), Unknown, true},
		{"unauthorized", answers(401, `{"error":"Unauthorized"}`), Unknown, true},
		{"forbidden", answers(403, `{}`), Unknown, true},
		{"rate limit", answers(429, `{}`), Unknown, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := newProbed(t, "", row.act)
			c := NewCapability(newTestClient(t, ""))
			if row.name == "too late" {
				c.probes.limit = 20 * time.Millisecond
			}
			now := time.Now()
			c.probes.now = func() time.Time { return now }
			probe := func() Finding { return c.Probe(t.Context(), p.instance, "1", "") }
			if got := probe(); got != row.want {
				t.Errorf("got %d, want %d", got, row.want)
			}
			now = now.Add(capabilityRetry - 1)
			if probe(); (p.asked() == 2) != row.again {
				t.Errorf("asked %d times at once, want another: %t", p.asked(), row.again)
			}
			before := p.asked()
			now = now.Add(1)
			if probe(); (p.asked() > before) != (row.want == Unknown) {
				t.Errorf("asked %d times after 30 s", p.asked())
			}
			p.then(answers(400, refusesIDs))
			now = now.Add(capabilityRetry)
			if got, want := probe(), max(row.want, Yes); got != want {
				t.Errorf("when the engine answers: got %d, want %d", got, want)
			}
		})
	}
}

// The probe is our own: it names the model that the instance lists first.
func TestCapability_TheProbeAsSent(t *testing.T) {
	const head = `{"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,"prompt_token_ids":[1,"x"]},"max_tokens":1,"messages":[{"content":"x","role":"user"}]`
	for models, want := range map[string]string{
		`{"object":"list","data":[{"id":"base"},{"id":"adapter"}]}`: head + `,"model":"base"}`,
		`{"data":[]}`:                head + "}",
		`{"data":[{"id":1}]}`:        head + "}",
		``:                           head + "}",
		`nonsense`:                   head + "}",
		strings.Repeat("[", 512<<10): head + "}",
	} {
		p := newProbed(t, models, answers(200, `{}`))
		if got := NewCapability(newTestClient(t, "ours")).Probe(t.Context(), p.instance, "1", "Bearer client"); got != No {
			t.Errorf("%.40s: got %d, want No", models, got)
		}
		if p.asked() != 1 || p.bodies[0] != want || p.keys[0] != "Bearer ours" {
			t.Errorf("%.40s: sent\n     %s with %q\nwant %s", models, p.bodies, p.keys, want)
		}
	}
}

func TestCapability_OneProbeAtATime(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	p := newProbed(t, "", func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-leave
		answerJSON(`{}`)(w, r)
	})
	c := NewCapability(newTestClient(t, ""))
	found := make(chan Finding, 3) // the results
	probe := func(ctx context.Context) { found <- c.Probe(ctx, p.instance, "1", "") }
	first, hangUp := context.WithCancel(t.Context())
	go probe(first)
	<-entered
	hangUp() // which ends nothing but its own wait
	if got := <-found; got != Unknown {
		t.Errorf("who left: got %d, want Unknown", got)
	}
	c.Begin(t.Context(), p.instance, "1") // does not wait
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if got := c.Probe(gone, p.instance, "1", ""); got != Unknown {
		t.Errorf("who came and left: got %d, want Unknown", got)
	}
	for range 2 {
		go probe(t.Context())
	}
	close(leave)
	for range 2 {
		if got := <-found; got != No {
			t.Errorf("who waited: got %d, want No", got)
		}
	}
	if p.asked() != 1 {
		t.Errorf("asked %d times, want once", p.asked())
	}
}

// Where our own key opens nothing, a client's may; one that does not is no hindrance
// to the next.
func TestCapability_AClientsKeyWhereOursIsRefused(t *testing.T) {
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
	p := newProbed(t, "", refuses)
	c := NewCapability(newTestClient(t, ""))
	c.Begin(t.Context(), p.instance, "1")
	for _, row := range []struct {
		key  string
		want Finding
	}{{"", Unknown}, {"Bearer bad", Unknown}, {"Bearer broken", Unknown}, {"Bearer good", Yes}, {"", Yes}, {"Bearer bad", Yes}} {
		if got := c.Probe(t.Context(), p.instance, "1", row.key); got != row.want {
			t.Errorf("with %q: got %d, want %d", row.key, got, row.want)
		}
	}
	before := p.asked()
	if c.Begin(t.Context(), p.instance, "1"); p.asked() != before {
		t.Error("a start of which all is known was asked again")
	}
}

// What begins the probe of a start, every few seconds, is not to pester an engine that
// does not let us in.
func TestCapability_BeginLeavesTheRefusedToTheTurns(t *testing.T) {
	p := newProbed(t, "", answers(401, `{}`))
	c := NewCapability(newTestClient(t, ""))
	c.Probe(t.Context(), p.instance, "1", "")
	leave := make(chan struct{})
	p.then(func(http.ResponseWriter, *http.Request) { <-leave })
	c.Begin(t.Context(), p.instance, "1")
	c.probes.mu.Lock()
	if n := len(c.probes.open); n != 0 {
		t.Errorf("%d probes are under way, want none", n)
	}
	c.probes.mu.Unlock()
	close(leave)
	if got := c.Probe(t.Context(), p.instance, "1", ""); got != No {
		t.Errorf("the next turn: got %d, want No", got)
	}
}

func TestCapability_ADefectIsAFailedProbe(t *testing.T) {
	client := newTestClient(t, "")
	client.http.Transport = defect{}
	c := NewCapability(client)
	if got := c.Probe(t.Context(), &Instance{BaseURL: "http://a"}, "1", ""); got != Unknown {
		t.Errorf("got %d, want Unknown", got)
	}
}

// defect is a transport that panics.
type defect struct{}

func (defect) RoundTrip(*http.Request) (*http.Response, error) { panic("defect") }

func (defect) CloseIdleConnections() {}

func TestCapability_PlugInIsWithdrawnByTheFirstAnswerWithout(t *testing.T) {
	instance := &Instance{BaseURL: "http://a"}
	c := NewCapability(nil)
	for n, row := range []struct {
		present bool
		want    Finding
	}{{true, Yes}, {true, Yes}, {false, No}, {true, No}} {
		c.LearnPlugIn(instance, "1", row.present)
		if got := c.PlugIn(instance, "1"); got != row.want {
			t.Errorf("after answer %d: got %d, want %d", n, got, row.want)
		}
	}
	if got := c.PlugIn(instance, "2"); got != Unknown {
		t.Errorf("next start: got %d, want Unknown", got)
	}
	if c.LearnPlugIn(instance, "2", false); c.PlugIn(instance, "2") != No {
		t.Error("an engine without plug-in is not known as such")
	}
}

func TestCapability_RemembersABoundedNumberOfStarts(t *testing.T) {
	a := &Instance{BaseURL: "http://a"}
	c := NewCapability(nil)
	for i := range maxRemembered + 10 {
		c.LearnPlugIn(a, strconv.Itoa(i), true)
	}
	if len(c.known) > maxRemembered {
		t.Errorf("remembers %d, want %d at most", len(c.known), maxRemembered)
	}
}
