package facts

import (
	"context"
	"strings"
	"testing"
	"time"

	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/vllmsim"
)

func (i *incarnation) probe(api body.API, key string) Finding {
	return i.Capability.Probe(i.rig.t.Context(), api, key)
}

func TestProbeIDs_OfSimulatedEngines(t *testing.T) {
	for _, api := range []body.API{body.Chat, body.Messages, body.Responses} {
		for ids, want := range map[bool]Finding{true: Yes, false: No} {
			s := simulate(t, func(c *vllmsim.Config) { c.PromptTokenIDs = ids })
			for range 2 {
				if got := s.probe(api, ""); got != want || s.Capability.UsesIDs(api) != want {
					t.Errorf("%s, uses ids %t: got %d, known %d, want %d", api.Path(), ids, got, s.Capability.UsesIDs(api), want)
				}
			}
			s.wantPaths(0, "/v1/models", api.Path())
		}
	}
}

const refusesIDs = `400 {"error":{"message":"m","param":"` + idsMember + `"}}`

// What recordings and other answers say, and when the next caller makes another probe.
func TestProbeIDs_WhatAnAnswerSays(t *testing.T) {
	refusal, agents := recorded(t, "14-bad-prompt-token-ids.json"), recordedAgents(t, "bad-prompt-token-ids")
	unknown := "404 " + recorded(t, "15-unknown-model.json")
	for _, row := range []struct {
		name   string
		api    body.API
		answer string
		want   Finding
		again  bool // at once
	}{
		{"recorded refusal", body.Chat, "400 " + refusal, Yes, false},
		{"flat error body of old engines", body.Chat, `400 {"object":"error","message":"m","param":"` + idsMember + `"}`, Yes, false},
		{"ids that the engine itself reads (0.28)", body.Chat, `400 {"error":{"message":"Token id -1 is out of vocabulary","param":null}}`, Yes, false},
		{"an answer", body.Chat, "200 {}", No, false},
		{"another member", body.Chat, `400 {"error":{"param":"messages"}}`, Unknown, false},
		{"the member with another status", body.Chat, "500 " + refusal, Unknown, false},
		{"no JSON", body.Chat, "400 no", Unknown, false},
		{"nested without end", body.Chat, "400 " + strings.Repeat("[", 12<<20), Unknown, false},
		{"overloaded", body.Chat, "503 {}", Unknown, false},
		{"broken connection", body.Chat, "breaks", Unknown, false},
		{"too late", body.Chat, "hangs", Unknown, false},
		{"an unknown model", body.Chat, unknown, Unknown, true},
		{"unauthorized", body.Chat, `401 {"error":"Unauthorized"}`, Unknown, true},
		{"forbidden", body.Chat, "403 {}", Unknown, true},
		{"rate limit", body.Chat, "429 {}", Unknown, true},
		{"a chat that is not served", body.Chat, `404 {"detail":"Not Found"}`, Unknown, true},

		{"recorded refusal of Messages", body.Messages, "400 " + agents, Yes, false},
		{"the same for Responses, which has a param", body.Responses, "400 " + agents, Unknown, false},
		{"a param", body.Responses, refusesIDs, Yes, false},
		{"another text", body.Messages, `400 {"type":"error","error":{"type":"BadRequestError","message":"no"}}`, Unknown, false},
		{"body validation", body.Messages, `400 {"error":{"message":"` + idsMember + `","param":"body.kv_transfer_params"}}`, Unknown, false},
		{"the text with another status", body.Messages, "500 " + agents, Unknown, false},
		{"an answer of Messages", body.Messages, "200 {}", No, false},
		{"not served", body.Messages, `404 {"detail":"Not Found"}`, No, false},
		{"not served, as vLLM says it", body.Responses, `404 {"error":{"message":"Not Found","type":"Not Found","param":null,"code":404}}`, No, false},
		{"no such method", body.Responses, `405 {"detail":"Method Not Allowed"}`, No, false},
		{"an unknown model of Messages", body.Messages, "404 " + recordedAgents(t, "unknown-model"), Unknown, true},
		{"an unknown model of the other shape", body.Responses, unknown, Unknown, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := newFake(t, told{row.api.Path(): row.answer})
			if row.answer == "hangs" {
				f.Capability.limit = time.Second // the last question is answered in time
			}
			want := func(finding Finding, more bool) {
				t.Helper()
				before := len(f.got(row.api.Path()))
				if got := f.probe(row.api, ""); got != finding || (len(f.got(row.api.Path())) > before) != more {
					t.Errorf("got %d, want %d; asked %v, want another question: %t", got, finding, f.paths(), more)
				}
			}
			want(row.want, true)
			f.rig.pass(idsRetry - 1)
			want(row.want, row.again)
			f.rig.pass(1)
			want(row.want, row.want == Unknown)
			f.then(told{row.api.Path(): map[bool]string{true: "400 " + agents, false: refusesIDs}[row.api == body.Messages]})
			f.rig.pass(idsRetry)
			want(max(row.want, Yes), row.want == Unknown) // the engine answers
		})
	}
}

// The probe is our own: it names the model that the instance lists first, and asks each API with a request that it would take but for the ids.
func TestProbeIDs_AsksEachAPIInItsOwnWords(t *testing.T) {
	const params = `"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,"prompt_token_ids":[1,-1]}`
	const chat = `{` + params + `,"max_tokens":1,"messages":[{"content":"x","role":"user"}]`
	for _, row := range []struct {
		api          body.API
		models, want string
	}{
		{body.Chat, `200 {"object":"list","data":[{"id":"base"},{"id":"adapter"}]}`, chat + `,"model":"base"}`},
		{body.Messages, `200 {"data":[{"id":"m"}]}`, chat + `,"model":"m"}`},
		{body.Responses, `200 {"data":[{"id":"m"}]}`, `{"input":"x",` + params + `,"max_output_tokens":1,"store":false,"model":"m"}`},
		{body.Chat, `200 {"data":[]}`, chat + "}"},
		{body.Chat, `200 {"data":[{"id":1}]}`, chat + "}"},
		{body.Chat, "404", chat + "}"},
		{body.Chat, "200 nonsense", chat + "}"},
		{body.Chat, "200 " + strings.Repeat("[", 512<<10), chat + "}"},
	} {
		r := newRig(t)
		r.Client = r.client("ours")
		f := r.fake(told{"/v1/models": row.models, row.api.Path(): "200 {}"})
		if got := f.probe(row.api, "Bearer client"); got != No {
			t.Errorf("%.40s: got %d, want No", row.models, got)
		}
		if sent := f.got(row.api.Path()); len(sent) != 1 || sent[0] != (asked{row.api.Path(), row.want, "Bearer ours"}) {
			t.Errorf("%.40s: sent\n     %s\nwant %s with our key", row.models, sent, row.want)
		}
		for other := range body.API(body.APIs) {
			if got := f.Capability.UsesIDs(other); other != row.api && got != Unknown {
				t.Errorf("%s: that of %s is known as %d", row.api.Path(), other.Path(), got)
			}
		}
	}
}

func TestProbeIDs_OneAtATime(t *testing.T) {
	f := newFake(t, told{"/completions": "held 200 {}"})
	found := make(chan Finding, 3) // the results
	probe := func(ctx context.Context) { found <- f.Capability.Probe(ctx, body.Chat, "") }
	ctx, hangUp := context.WithCancel(t.Context())
	go probe(ctx)
	<-f.entered
	hangUp()                        // which ends nothing but its own wait
	f.Capability.Begin(t.Context()) // does not wait
	probe(ctx)                      // comes and leaves
	for range 2 {
		if got := <-found; got != Unknown {
			t.Errorf("a caller that left: got %d, want Unknown", got)
		}
		go probe(t.Context())
	}
	close(f.leave)
	for range 2 {
		if got := <-found; got != No {
			t.Errorf("the caller that waited: got %d, want No", got)
		}
	}
	if n := len(f.got("/completions")); n != 1 {
		t.Errorf("asked %d times, want once", n)
	}
}

// Where our own key opens nothing, a client's may; one that does not is no hindrance to the next.
func TestProbeIDs_AClientsKeyWhereOursIsRefused(t *testing.T) {
	f := newFake(t, told{"/completions": "401 {}", "/completions Bearer good": refusesIDs, "/completions Bearer broken": "500 {}"})
	f.Capability.Begin(t.Context())
	for _, row := range []struct {
		key  string
		want Finding
	}{{"", Unknown}, {"Bearer bad", Unknown}, {"Bearer broken", Unknown}, {"Bearer good", Yes}, {"", Yes}, {"Bearer bad", Yes}} {
		if got := f.probe(body.Chat, row.key); got != row.want {
			t.Errorf("with %q: got %d, want %d", row.key, got, row.want)
		}
	}
	before := f.paths()
	if f.Capability.Begin(t.Context()); f.paths() != before {
		t.Error("a start of which all is known was asked again")
	}
}

// What begins the probe of an incarnation, every few seconds, is not to pester an engine that does not let us in. A key that one API refuses
// says nothing of another.
func TestProbeIDs_ThoseThatRefuseAreLeftToTheTurns(t *testing.T) {
	for api, begun := range map[body.API]int{body.Chat: 0, body.Messages: 1} {
		f := newFake(t, told{api.Path(): "401 {}"})
		f.probe(api, "")
		f.then(told{body.Chat.Path(): "held 200 {}"})
		f.Capability.Begin(t.Context())
		f.Capability.mu.Lock()
		if n := len(f.Capability.open); n != begun {
			t.Errorf("%s has refused: %d probes of chat are under way, want %d", api.Path(), n, begun)
		}
		f.Capability.mu.Unlock()
		close(f.leave)
		if got := f.probe(body.Chat, ""); got != No {
			t.Errorf("the next turn: got %d, want No", got)
		}
	}
}

func TestProbeIDs_ADefectIsAFailedProbe(t *testing.T) {
	f := newFake(t, told{"/completions": "200 {}"})
	if got := f.Capability.Probe(defective{t.Context()}, body.Chat, ""); got != Unknown || f.paths() != "" {
		t.Errorf("got %d after probes of %s, want Unknown after none", got, f.paths())
	}
}

// What an engine fails of our own request is its fault; what it refuses says nothing.
func TestTry_OfEngines(t *testing.T) {
	const otherwise, none = upstream.Timeout, upstream.Kind(-1)
	for answer, want := range map[string]upstream.Kind{
		`200 {"choices":[{"text":"x"}]}`: none, `500 {"error":{}}`: upstream.Status, `200 {"error":{}}`: upstream.Garbage, "200 choices": upstream.Garbage, "breaks": upstream.Broken,
		`401 {"error":"Unauthorized"}`: otherwise, "404 {}": otherwise, "501 {}": otherwise, "429 {}": otherwise,
	} {
		kind := none
		if got := newFake(t, told{"/v1/completions": answer}).Capability.Try(t.Context(), &upstream.LegError{Kind: otherwise}); got != nil {
			kind = got.Kind
		}
		if kind != want {
			t.Errorf("%s: got %v, want %v", answer, kind, want)
		}
	}
}

// An engine that serves fails no question, leaves nothing, and says once whether it checks keys.
func TestTry_OfSimulatedEngines(t *testing.T) {
	for key, checks := range map[string]bool{"": false, "secret": true} {
		s := simulate(t, func(c *vllmsim.Config) { c.APIKey = key })
		if got := s.Capability.Try(t.Context(), nil); got != nil {
			t.Errorf("key %q: %v", key, got)
		}
		asked := len(s.Requests())
		for range 2 {
			if got := s.Keys.Checked(t.Context()); got != checks || len(s.Requests()) != asked+1 {
				t.Errorf("key %q: checks keys: %t, asked %d times", key, got, len(s.Requests())-asked)
			}
		}
		if stats := s.Stats(); stats.Pins != 0 {
			t.Errorf("key %q: %d pins are left", key, stats.Pins)
		}
	}
}
