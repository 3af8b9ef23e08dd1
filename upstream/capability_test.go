package upstream

import (
	"context"
	"io"
	"net/http"
	"strconv"
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
			if got := c.Probe(t.Context(), instance, "1", "sim", ""); got != row.want || c.Known(instance, "1") != row.want {
				t.Errorf("%s: got %d, known %d, want %d", row.name, got, c.Known(instance, "1"), row.want)
			}
		}
		if got := paths(sim); len(got) != 1 || got[0] != Chat.Path() {
			t.Errorf("%s: asked %v, want one chat request", row.name, got)
		}
		if got := c.Known(instance, "2"); got != Unknown {
			t.Errorf("%s: the next start is known as %d", row.name, got)
		}
	}
}

// The probe as sent, and what recordings and other answers say.
func TestCapability_WhatAnAnswerSays(t *testing.T) {
	refusal := string(recorded(t, "14-bad-prompt-token-ids.json").Response.JSON)
	for _, row := range []struct {
		name, answer string
		status       int
		want         Finding
	}{
		{"recorded refusal", refusal, 400, Yes},
		{"flat error body of old engines", `{"object":"error","message":"m","param":"` + idsMember + `"}`, 400, Yes},
		{"another member", `{"error":{"param":"messages"}}`, 400, Unknown},
		{"an unknown model", string(recorded(t, "15-unknown-model.json").Response.JSON), 404, Unknown},
		{"the member with another status", refusal, 500, Unknown},
		{"no JSON", `no`, 400, Unknown},
		{"overloaded", `{}`, 503, Unknown},
		{"unauthorized", `{"error":"Unauthorized"}`, 401, Unknown},
		{"an answer", `{}`, 200, No},
	} {
		var body []byte
		asked := 0
		instance := engine(t, RolePrefill, func(w http.ResponseWriter, r *http.Request) {
			asked++
			body, _ = io.ReadAll(r.Body)
			if r.URL.Path != Chat.Path() || r.Header.Get("Authorization") != "Bearer a" {
				t.Errorf("asked %s with %q", r.URL.Path, r.Header.Get("Authorization"))
			}
			w.WriteHeader(row.status)
			_, _ = io.WriteString(w, row.answer)
		})
		c := NewCapability(newTestClient(t, ""))
		now := time.Now()
		c.now = func() time.Time { return now }
		probe := func() Finding { return c.Probe(t.Context(), instance, "1", "m", "Bearer a") }
		if got := probe(); got != row.want {
			t.Errorf("%s: got %d, want %d", row.name, got, row.want)
		}
		want := `{"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,"prompt_token_ids":[1,"x"]},"max_tokens":1,"messages":[{"content":"x","role":"user"}],"model":"m"}`
		if string(body) != want {
			t.Errorf("%s: sent\n     %s\nwant %s", row.name, body, want)
		}
		now = now.Add(capabilityRetry - 1)
		if probe(); asked != 1 {
			t.Errorf("%s: asked again at once", row.name)
		}
		now = now.Add(1)
		if probe(); (asked == 2) != (row.want == Unknown) {
			t.Errorf("%s: asked %d times after 30 s", row.name, asked)
		}
	}
}

func TestCapability_OneProbeAtATime(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	instance := engine(t, RolePrefill, func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-leave
		answerJSON(`{}`)(w, r)
	})
	c := NewCapability(newTestClient(t, ""))
	found := make(chan Finding, 1) // the one result
	go func() { found <- c.Probe(t.Context(), instance, "1", "", "") }()
	<-entered
	if got := c.Probe(t.Context(), instance, "1", "", ""); got != Unknown {
		t.Errorf("meanwhile: got %d, want Unknown", got)
	}
	close(leave)
	if got := <-found; got != No {
		t.Errorf("got %d, want No", got)
	}
}

func TestCapability_NoAnswerProvesNothing(t *testing.T) {
	instance := &Instance{BaseURL: "http://127.0.0.1:1", Role: RoleDecode}
	c := NewCapability(newTestClient(t, ""))
	if got := c.Probe(t.Context(), instance, "1", "m", ""); got != Unknown {
		t.Errorf("nobody listens: got %d, want Unknown", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := c.Probe(ctx, instance, "2", "m", ""); got != Unknown {
		t.Errorf("caller gone: got %d, want Unknown", got)
	}
}

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
