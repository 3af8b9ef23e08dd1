package facts

import (
	"errors"
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

const (
	messagesBody  = `{"model":"sim","max_tokens":8,` + oneMessage + `}`
	thoughtless   = `{"model":"sim","max_tokens":8,"thinking":{"type":"disabled"},` + oneMessage + `}`
	responsesBody = `{"model":"m","input":"hi"}`
)

// rendering is an incarnation whose endpoints beside the legs answer as told, and what they were asked.
type rendering struct {
	*incarnation
	rig *rig

	mu      sync.Mutex // guards the rest
	answers map[string]http.HandlerFunc
	asked   []string
}

// newRendering returns an incarnation of a prefill engine, with the answers of its render and count endpoints by what their paths end with.
func newRendering(t *testing.T, answers map[string]http.HandlerFunc) *rendering {
	t.Helper()
	r := &rendering{rig: newRig(t), answers: answers}
	r.incarnation = tells(r.rig.engine(upstream.RolePrefill, r.serve), "1")
	return r
}

func (r *rendering) serve(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	r.asked = append(r.asked, req.URL.Path)
	var act http.HandlerFunc = http.NotFound
	for end, answer := range r.answers {
		if strings.HasSuffix(req.URL.Path, end) {
			act = answer
		}
	}
	r.mu.Unlock()
	act(w, req)
}

func (r *rendering) paths() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.asked)
}

// prompt asks for the ids of a body.
func (r *rendering) prompt(t *testing.T, api body.API, body, authorization string) ([]uint32, error) {
	t.Helper()
	prompt, err := r.Prompts.Read(t.Context(), mustParse(t, api, body), authorization)
	return prompt.IDs, err
}

func TestRender_GivesWhatMessagesComputes(t *testing.T) {
	for name, raw := range map[string]string{
		"plain":  messagesBody,
		"stream": `{"model":"sim","max_tokens":8,"stream":true,` + oneMessage + `}`,
		"agent": `{"model":"sim","max_tokens":8,"system":[{"type":"text","text":"You answer.","cache_control":{"type":"ephemeral"}}],
			"tools":[{"name":"f","input_schema":{"type":"object","properties":{}}}],
			"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{"b":1,"a":[2]}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"12"}]},{"role":"system","content":"be brief"}]}`,
		"thinking is disabled": thoughtless,
	} {
		sim, e := newRig(t).simulate(upstream.RolePrefill, func(c *vllmsim.Config) { c.Render, c.MaxModelLen = true, 4096 })
		incarnation := e.Current(t.Context())
		req := mustParse(t, body.Messages, raw)
		e.list(t.Context())
		prompt, err := incarnation.Prompts.Read(t.Context(), req, "")
		n, countErr := incarnation.Prompts.Count(t.Context(), req, "")
		if err != nil || countErr != nil || len(prompt.IDs) != n || n == 0 || prompt.ContextLength != 4096 {
			t.Errorf("%s: %d ids, %v, of %d tokens, %v; context of %d", name, len(prompt.IDs), err, n, countErr, prompt.ContextLength)
		}
		if got := incarnation.Prompts.Renders(body.Messages); got != Yes {
			t.Errorf("%s: renders: %d, want Yes", name, got)
		}
		if slices.Contains(paths(sim), "/tokenize") {
			t.Errorf("%s: asked %v", name, paths(sim))
		}
		prompt.Done()
	}
}

func TestRender_GivesWhatResponsesComputes(t *testing.T) {
	_, e := newRig(t).simulate(upstream.RolePrefill, func(c *vllmsim.Config) { c.Render = true })
	incarnation := e.Current(t.Context())
	req := mustParse(t, body.Responses, `{"model":"sim","input":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}],"instructions":"be brief"}`)
	prompt, err := incarnation.Prompts.Read(t.Context(), req, "")
	if err != nil || len(prompt.IDs) == 0 || incarnation.Prompts.Renders(body.Responses) != Yes || incarnation.Prompts.Renders(body.Messages) != Unknown {
		t.Errorf("got %v, %v, known as %d and %d", prompt.IDs, err, incarnation.Prompts.Renders(body.Responses), incarnation.Prompts.Renders(body.Messages))
	}
}

func TestRender_LearnsOncePerIncarnationThatThereIsNone(t *testing.T) {
	const render = "/v1/messages/render"
	sim, e := newRig(t).simulate(upstream.RolePrefill, nil)
	req := mustParse(t, body.Messages, messagesBody)
	for range 2 {
		if _, err := e.Current(t.Context()).Prompts.Read(t.Context(), req, ""); !errors.Is(err, ErrNoRender) {
			t.Fatalf("got %v", err)
		}
	}
	if got, want := paths(sim), []string{"/metrics", render}; !slices.Equal(got, want) {
		t.Errorf("asked %v, want %v", got, want)
	}
	if s := e.Last(); s.Prompts.Renders(body.Messages) != No || s.Prompts.Renders(body.Responses) != Unknown {
		t.Errorf("known are %d and %d", s.Prompts.Renders(body.Messages), s.Prompts.Renders(body.Responses))
	}
	sim.Restart()
	on := true
	if err := sim.Switch(vllmsim.Switches{Render: &on}); err != nil {
		t.Fatal(err)
	}
	e.Refused()
	incarnation := e.Current(t.Context())
	if got := incarnation.Prompts.Renders(body.Messages); got != Unknown {
		t.Errorf("the next start is known as %d", got)
	}
	if _, err := incarnation.Prompts.Read(t.Context(), req, ""); err != nil || incarnation.Prompts.Renders(body.Messages) != Yes {
		t.Errorf("after the restart: %v", err)
	}
}

// What an answer says, and that nothing is gone round.
func TestRender_WhatAnAnswerSays(t *testing.T) {
	off := recordedAgents(t, agentErrors, "x-render-disabled")
	for _, row := range []struct {
		name          string
		status        int
		answer        string
		authorization string
		want          Finding
		failed        int // status of the failure, -1 for one without
	}{
		{"ids", 200, `{"token_ids":[1,2]}`, "", Yes, 0},
		{"switched off", 403, off, "", No, 0},
		{"switched off, seen by a client", 403, off, "Bearer a", No, 0},
		{"not let in", 403, `{}`, "", No, 0},
		{"a client who is not let in", 403, `{}`, "Bearer a", Unknown, 403},
		{"not served", 404, `{"detail":"Not Found"}`, "", No, 0},
		{"no such method", 405, `{}`, "", No, 0},
		{"an unknown model", 404, recorded(t, "15-unknown-model.json"), "", Unknown, 404},
		{"an unknown model of the other shape", 404, recordedAgents(t, agentErrors, "unknown-model"), "", Unknown, 404},
		{"a 404 that names a member", 404, `{"error":{"message":"m","type":"invalid_request_error","param":"model"}}`, "", Unknown, 404},
		{"a client's mistake", 400, recordedAgents(t, agentErrors, "missing-max-tokens"), "", Unknown, 400},
		{"unauthorized", 401, `{"error":"Unauthorized"}`, "", Unknown, 401},
		{"overloaded", 503, `{}`, "", Unknown, 503},
		{"no ids", 200, `{"token_ids":[]}`, "", Unknown, -1},
		{"the ids of another endpoint", 200, `{"tokens":[1]}`, "", Unknown, -1},
		{"no JSON", 200, `no`, "", Unknown, -1},
	} {
		for _, api := range []body.API{body.Messages, body.Responses} {
			r := newRendering(t, map[string]http.HandlerFunc{"/render": answers(row.status, row.answer)})
			raw := messagesBody
			if api == body.Responses {
				raw = responsesBody
			}
			ids, err := r.prompt(t, api, raw, row.authorization)
			var failed *upstream.LegError
			switch {
			case row.want == Yes && (err != nil || len(ids) != 2):
				t.Errorf("%s: got %v, %v", row.name, ids, err)
			case row.want == No && !errors.Is(err, ErrNoRender):
				t.Errorf("%s: got %v, %v, want ErrNoRender", row.name, ids, err)
			case row.failed != 0 && (!errors.As(err, &failed) || failed.Status != max(row.failed, 0)):
				t.Errorf("%s: got %v, %v, want a failure with %d", row.name, ids, err, row.failed)
			}
			if got := r.Prompts.Renders(api); got != row.want {
				t.Errorf("%s: known as %d, want %d", row.name, got, row.want)
			}
			if got, want := r.paths(), []string{api.Path() + "/render"}; !slices.Equal(got, want) {
				t.Errorf("%s: asked %v, want %v", row.name, got, want)
			}
		}
	}
}

// The engine's own words for what is wrong with a request can reach the client.
func TestRender_TellsTheClientsMistake(t *testing.T) {
	r := newRendering(t, map[string]http.HandlerFunc{"/render": answers(400, recordedAgents(t, agentErrors, "missing-max-tokens"))})
	_, err := r.prompt(t, body.Messages, messagesBody, "")
	var failed *upstream.LegError
	if !errors.As(err, &failed) || failed.Kind != upstream.Status || failed.Param != "body.max_tokens" || failed.Role != upstream.RolePrefill || failed.Instance != "engine" {
		t.Errorf("got %+v", failed)
	}
}

func TestRender_IsBoundedInTime(t *testing.T) {
	hangs := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or net/http does not see that the client has gone
		<-r.Context().Done()
	}
	for _, row := range []map[string]http.HandlerFunc{
		{"/render": hangs},
		{"/render": answerJSON(`{"token_ids":[1]}`), "/count_tokens": hangs},
	} {
		r := newRendering(t, row)
		r.rig.AskLimit = 20 * time.Millisecond
		if ids, err := r.prompt(t, body.Messages, thoughtless, ""); err == nil {
			t.Errorf("an engine that does not answer has given %v", ids)
		}
	}
}

// Of an incarnation that is not known nothing could be remembered.
func TestRender_OfAnUnknownIncarnationNothingIsKept(t *testing.T) {
	_, e := newRig(t).simulate(upstream.RolePrefill, nil)
	s := e.Last()
	if _, err := s.Prompts.Read(t.Context(), mustParse(t, body.Messages, messagesBody), ""); !errors.Is(err, ErrNoRender) || s.Prompts.Renders(body.Messages) != Unknown {
		t.Errorf("got %v, known as %d", err, s.Prompts.Renders(body.Messages))
	}
}
