package facts

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/vllmsim"
)

// recordedAgents returns the body of an answer that was recorded with the Messages and Responses APIs, one of several of a file.
func recordedAgents(tb testing.TB, file, name string) string {
	tb.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "testdata", "exchanges", "vllm-0.32-agents", file))
	if err != nil {
		tb.Fatal(err)
	}
	var e struct {
		Exchanges []struct {
			Name     string
			Response struct{ JSON json.RawMessage }
		}
	}
	if err := json.Unmarshal(raw, &e); err != nil {
		tb.Fatal(err)
	}
	for _, x := range e.Exchanges {
		if x.Name == name {
			return string(x.Response.JSON)
		}
	}
	tb.Fatalf("%s has no %s", file, name)
	return ""
}

const agentErrors = "13-errors-and-small-answers.json"

// Each API is asked with a request that it would take but for the ids.
func TestProbeIDs_AsksEachAPIInItsOwnWords(t *testing.T) {
	const params = `"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,"prompt_token_ids":[1,-1]}`
	for api, want := range map[body.API]string{
		body.Chat:      `{` + params + `,"max_tokens":1,"messages":[{"content":"x","role":"user"}],"model":"m"}`,
		body.Messages:  `{` + params + `,"max_tokens":1,"messages":[{"content":"x","role":"user"}],"model":"m"}`,
		body.Responses: `{"input":"x",` + params + `,"max_output_tokens":1,"store":false,"model":"m"}`,
	} {
		p := newProbed(t, "", `{"data":[{"id":"m"}]}`, answers(400, refusesIDs))
		p.serve(api)
		if got := p.Capability.Probe(t.Context(), api, ""); got != Yes || len(p.bodies) != 1 || p.bodies[0] != want {
			t.Errorf("%s: got %d, sent\n     %s\nwant %s", api.Path(), got, p.bodies, want)
		}
		for other := range body.API(body.APIs) {
			if got := p.Capability.UsesIDs(other); other != api && got != Unknown {
				t.Errorf("%s: that of %s is known as %d", api.Path(), other.Path(), got)
			}
		}
	}
}

// What the two APIs answer, and whether the next caller makes another probe at once.
func TestProbeIDs_WhatOtherAPIsAnswer(t *testing.T) {
	refusal := recordedAgents(t, agentErrors, "bad-prompt-token-ids")
	unknown := recordedAgents(t, agentErrors, "unknown-model")
	for _, row := range []struct {
		name  string
		api   body.API
		act   http.HandlerFunc
		want  Finding
		again bool
	}{
		{"recorded refusal", body.Messages, answers(400, refusal), Yes, false},
		{"the same for Responses, which has a param", body.Responses, answers(400, refusal), Unknown, false},
		{"a param", body.Responses, answers(400, refusesIDs), Yes, false},
		{"another text", body.Messages, answers(400, `{"type":"error","error":{"type":"BadRequestError","message":"no"}}`), Unknown, false},
		{"body validation", body.Messages, answers(400, `{"error":{"message":"`+idsMember+`","param":"body.kv_transfer_params"}}`), Unknown, false},
		{"the text with another status", body.Messages, answers(500, refusal), Unknown, false},
		{"an answer", body.Messages, answers(200, `{}`), No, false},
		{"not served", body.Messages, answers(404, `{"detail":"Not Found"}`), No, false},
		{"not served, as vLLM says it", body.Responses, answers(404, `{"error":{"message":"Not Found","type":"Not Found","param":null,"code":404}}`), No, false},
		{"no such method", body.Responses, answers(405, `{"detail":"Method Not Allowed"}`), No, false},
		{"an unknown model", body.Messages, answers(404, unknown), Unknown, true},
		{"an unknown model of the other shape", body.Responses, answers(404, recorded(t, "15-unknown-model.json")), Unknown, true},
		{"a chat that is not served", body.Chat, answers(404, `{"detail":"Not Found"}`), Unknown, true},
	} {
		p := newProbed(t, "", "", row.act)
		p.serve(row.api)
		for range 2 {
			if got := p.Capability.Probe(t.Context(), row.api, ""); got != row.want {
				t.Errorf("%s: got %d, want %d", row.name, got, row.want)
			}
		}
		if (p.asked() == 2) != row.again {
			t.Errorf("%s: asked %d times, want another: %t", row.name, p.asked(), row.again)
		}
	}
}

// A key that one API refuses says nothing of another.
func TestProbeIDs_ARefusalIsThatOfOneAPI(t *testing.T) {
	p := newProbed(t, "", "", answers(401, `{}`))
	p.serve(body.Messages)
	p.Capability.Probe(t.Context(), body.Messages, "")
	p.serve(body.Chat)
	leave := make(chan struct{})
	p.then(func(w http.ResponseWriter, r *http.Request) {
		<-leave
		answers(400, refusesIDs)(w, r)
	})
	p.Capability.Begin(t.Context())
	p.Capability.mu.Lock()
	if len(p.Capability.open) != 1 {
		t.Errorf("%d probes of chat are under way, want one", len(p.Capability.open))
	}
	p.Capability.mu.Unlock()
	close(leave)
	if got := p.Capability.Probe(t.Context(), body.Chat, ""); got != Yes || p.asked() != 2 {
		t.Errorf("chat: got %d after %d probes, want Yes after two", got, p.asked())
	}
}

func TestProbeIDs_OfSimulatedAgentsAPIs(t *testing.T) {
	for _, api := range []body.API{body.Messages, body.Responses} {
		for ids, want := range map[bool]Finding{true: Yes, false: No} {
			sim, e := newRig(t).simulate(upstream.RoleDecode, func(c *vllmsim.Config) { c.PromptTokenIDs = ids })
			s := tells(e, "1")
			for range 2 {
				if got := s.Capability.Probe(t.Context(), api, ""); got != want {
					t.Errorf("%s, uses ids %t: got %d, want %d", api.Path(), ids, got, want)
				}
			}
			if got, want := paths(sim), []string{"/v1/models", api.Path()}; !slices.Equal(got, want) {
				t.Errorf("asked %v, want %v", got, want)
			}
		}
	}
}
