package facts

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
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

func TestRender_GivesWhatTheEndpointComputes(t *testing.T) {
	for name, raw := range map[string]string{
		"plain":  messagesBody,
		"stream": `{"model":"sim","max_tokens":8,"stream":true,` + oneMessage + `}`,
		"agent": `{"model":"sim","max_tokens":8,"system":[{"type":"text","text":"You answer.","cache_control":{"type":"ephemeral"}}],
			"tools":[{"name":"f","input_schema":{"type":"object","properties":{}}}],
			"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{"b":1,"a":[2]}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"12"}]},{"role":"system","content":"be brief"}]}`,
		"thinking is disabled": thoughtless,
	} {
		s := simulate(t, func(c *vllmsim.Config) { c.Render, c.MaxModelLen = true, 4096 })
		req := mustParse(t, body.Messages, raw)
		s.list()
		prompt, err := s.Prompts.Read(t.Context(), req, "")
		n, countErr := s.Prompts.Count(t.Context(), req, "")
		if err != nil || countErr != nil || len(prompt.IDs) != n || n == 0 || prompt.ContextLength != 4096 || s.Prompts.Renders(body.Messages) != Yes {
			t.Errorf("%s: %d ids, %v, of %d tokens, %v; context of %d", name, len(prompt.IDs), err, n, countErr, prompt.ContextLength)
		}
		prompt.Done()
		ids, err := s.prompt(body.Responses, `{"model":"sim","input":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}],"instructions":"be brief"}`, "")
		if err != nil || len(ids) == 0 || s.Prompts.Renders(body.Responses) != Yes {
			t.Errorf("Responses: got %v, %v", ids, err)
		}
		for _, r := range s.Requests() {
			if r.Path == "/tokenize" {
				t.Errorf("%s: /tokenize was asked", name)
			}
		}
	}
}

func TestRender_LearnsOncePerIncarnationThatThereIsNone(t *testing.T) {
	s := simulate(t, nil)
	for range 2 {
		if _, err := s.prompt(body.Messages, messagesBody, ""); !errors.Is(err, ErrNoRender) || s.Prompts.Renders(body.Messages) != No || s.Prompts.Renders(body.Responses) != Unknown {
			t.Fatalf("got %v; known are %d and %d", err, s.Prompts.Renders(body.Messages), s.Prompts.Renders(body.Responses))
		}
	}
	s.wantPaths(0, "/v1/messages/render")
	// Of an incarnation that is not known nothing could be remembered.
	blank := s.rig.at(s.URL(), false)
	if _, err := blank.prompt(body.Messages, messagesBody, ""); !errors.Is(err, ErrNoRender) || blank.Prompts.Renders(body.Messages) != Unknown {
		t.Errorf("got %v, known as %d", err, blank.Prompts.Renders(body.Messages))
	}
	if s.renders(); s.Prompts.Renders(body.Messages) != Unknown {
		t.Errorf("the next start is known as %d", s.Prompts.Renders(body.Messages))
	}
	if _, err := s.prompt(body.Messages, messagesBody, ""); err != nil || s.Prompts.Renders(body.Messages) != Yes {
		t.Errorf("after the restart: %v", err)
	}
}

// failedWith returns the status of a failed leg, -1 for one without, 0 if no leg has failed.
func failedWith(err error) int {
	var leg *upstream.LegError
	if !errors.As(err, &leg) {
		return 0
	}
	return cmp.Or(leg.Status, -1)
}

// What an answer says, and that nothing is gone round.
func TestRender_WhatAnAnswerSays(t *testing.T) {
	off := "403 " + recordedAgents(t, "x-render-disabled")
	for _, row := range []struct {
		name, answer, key string
		want              Finding
		failed            int // status of the failure, -1 for one without
	}{
		{"ids", `200 {"token_ids":[1,2]}`, "", Yes, 0},
		{"switched off", off, "", No, 0},
		{"switched off, seen by a client", off, "Bearer a", No, 0},
		{"not let in", "403 {}", "", No, 0},
		{"a client who is not let in", "403 {}", "Bearer a", Unknown, 403},
		{"not served", `404 {"detail":"Not Found"}`, "", No, 0},
		{"no such method", "405 {}", "", No, 0},
		{"an unknown model", "404 " + recorded(t, "15-unknown-model.json"), "", Unknown, 404},
		{"an unknown model of the other shape", "404 " + recordedAgents(t, "unknown-model"), "", Unknown, 404},
		{"a 404 that names a member", `404 {"error":{"message":"m","type":"invalid_request_error","param":"model"}}`, "", Unknown, 404},
		{"a client's mistake", "400 " + recordedAgents(t, "missing-max-tokens"), "", Unknown, 400},
		{"unauthorized", `401 {"error":"Unauthorized"}`, "", Unknown, 401},
		{"overloaded", "503 {}", "", Unknown, 503},
		{"no ids", `200 {"token_ids":[]}`, "", Unknown, -1},
		{"the ids of another endpoint", `200 {"tokens":[1]}`, "", Unknown, -1},
		{"no JSON", "200 no", "", Unknown, -1},
	} {
		for api, raw := range map[body.API]string{body.Messages: messagesBody, body.Responses: responsesBody} {
			f := newFake(t, told{"/render": row.answer})
			ids, err := f.prompt(api, raw, row.key)
			if failedWith(err) != row.failed || errors.Is(err, ErrNoRender) != (row.want == No) || len(ids) != map[Finding]int{Yes: 2}[row.want] {
				t.Errorf("%s: got %v, %v, want a failure with %d", row.name, ids, err, row.failed)
			}
			if f.Prompts.Renders(api) != row.want || f.paths() != api.Path()+"/render" {
				t.Errorf("%s: known as %d after %s, want %d", row.name, f.Prompts.Renders(api), f.paths(), row.want)
			}
		}
	}
	// The engine's own words for what is wrong with a request can reach the client.
	_, err := newFake(t, told{"/render": "400 " + recordedAgents(t, "missing-max-tokens")}).prompt(body.Messages, messagesBody, "")
	var failed *upstream.LegError
	if !errors.As(err, &failed) || failed.Kind != upstream.Status || failed.Param != "body.max_tokens" || failed.Role != upstream.RolePrefill || failed.Instance != "engine" {
		t.Errorf("got %+v", failed)
	}
}

func TestPrompts_AreBoundedInTime(t *testing.T) {
	for _, answers := range []told{{"/render": "hangs"}, {"/render": `200 {"token_ids":[1]}`, "/count_tokens": "hangs"}, {"/tokenize": "hangs"}} {
		f := newFake(t, answers)
		f.rig.AskLimit = 20 * time.Millisecond
		api, raw := body.Messages, thoughtless
		if answers["/tokenize"] != "" {
			api, raw = body.Text, `{"prompt":"x"}`
		}
		if ids, err := f.prompt(api, raw, ""); err == nil {
			t.Errorf("an engine that does not answer has given %v", ids)
		}
	}
}

// Render says "none" for thinking that is disabled, and the endpoint what the template knows.
func TestRender_ThinkingThatIsDisabledMustHaveItsCount(t *testing.T) {
	const none = `{"model":"m","max_tokens":8,"thinking":%s,` + oneMessage + `}`
	for _, row := range []struct {
		name, body, count string
		comparable, asked bool
		failed            int
	}{
		{"as many", thoughtless, `200 {"input_tokens":3}`, true, true, 0},
		{"more", thoughtless, `200 {"input_tokens":4}`, false, true, 0},
		{"fewer", thoughtless, `200 {"input_tokens":2}`, false, true, 0},
		{"no endpoint", thoughtless, `404 {"detail":"Not Found"}`, false, true, 0},
		{"an unknown model", thoughtless, "404 " + recordedAgents(t, "unknown-model"), false, true, 404},
		{"overloaded", thoughtless, "503 {}", false, true, 503},
		{"no count", thoughtless, "200 {}", false, true, -1},
		{"a text", thoughtless, `200 {"input_tokens":"3"}`, false, true, -1},
		{"thinking", fmt.Sprintf(none, `{"type":"enabled","budget_tokens":4}`), `200 {"input_tokens":9}`, true, false, 0},
		{"null", fmt.Sprintf(none, `null`), `200 {"input_tokens":9}`, true, false, 0},
		{"nothing", messagesBody, `200 {"input_tokens":9}`, true, false, 0},
		{"escaped", fmt.Sprintf(none, `{"type":"d\u0069sabled"}`), `200 {"input_tokens":9}`, false, true, 0},
		{"said twice", fmt.Sprintf(none, `{"type":"enabled","type":"disabled"}`), `200 {"input_tokens":9}`, false, true, 0},
		{"no object", fmt.Sprintf(none, `"disabled"`), `200 {"input_tokens":9}`, false, true, 0},
		{"no text", fmt.Sprintf(none, `{"type":1}`), `200 {"input_tokens":9}`, false, true, 0},
	} {
		f := newFake(t, told{"/render": `200 {"token_ids":[1,2,3]}`, "/count_tokens": row.count})
		ids, err := f.prompt(body.Messages, row.body, "")
		if failedWith(err) != row.failed || errors.Is(err, ErrNotComparable) != (!row.comparable && row.failed == 0) || row.comparable && len(ids) != 3 {
			t.Errorf("%s: got %v, %v, want a failure with %d, or comparable %t", row.name, ids, err, row.failed, row.comparable)
		}
		if asked := len(f.got("/v1/messages/count_tokens")) > 0; asked != row.asked || f.Prompts.Renders(body.Messages) != Yes {
			t.Errorf("%s: asked %v, renders %d", row.name, f.paths(), f.Prompts.Renders(body.Messages))
		}
	}
	f := newFake(t, told{"/render": `200 {"token_ids":[1]}`})
	if _, err := f.prompt(body.Responses, `{"input":"x","thinking":{"type":"disabled"}}`, ""); err != nil || f.paths() != "/v1/responses/render" {
		t.Errorf("Responses, which knows no such member: %v after %s", err, f.paths())
	}
}

// FuzzReadCount compares with encoding/json what is accepted.
func FuzzReadCount(f *testing.F) {
	f.Fuzz(func(t *testing.T, answer []byte) {
		n, err := readCount(answer)
		if err != nil {
			return
		}
		var want struct {
			N *json.Number `json:"input_tokens"`
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(answer, &members); err != nil {
			t.Fatalf("%q is accepted: %v", answer, err)
		}
		if err := json.Unmarshal(members["input_tokens"], &want.N); err != nil || want.N == nil || n < 0 {
			t.Fatalf("%q: got %d, want %v", answer, n, err)
		}
		if exact, err := want.N.Int64(); err == nil && int64(n) != exact {
			t.Fatalf("%q: got %d, want %s", answer, n, *want.N)
		}
	})
}

// elsewhere is a fleet whose prompts are rendered by a server of its own.
func elsewhere(t *testing.T, answer string) (f, server *fake) {
	t.Helper()
	r := newRig(t)
	f, server = r.fake(told{"/render": `200 {"token_ids":[9]}`, "/count_tokens": `200 {"input_tokens":2}`}), r.fake(told{"/render": answer})
	server.instance.Name = "render"
	r.Render(&server.instance)
	return f, server
}

func TestRender_ByAServerForTheWholeFleet(t *testing.T) {
	f, server := elsewhere(t, `200 {"token_ids":[1,2]}`)
	if f.Prompts.Renders(body.Messages) != Unknown {
		t.Error("known before it was asked")
	}
	for api, raw := range map[body.API]string{body.Messages: thoughtless, body.Responses: responsesBody} {
		if ids, err := f.prompt(api, raw, "Bearer a"); err != nil || len(ids) != 2 || f.Prompts.Renders(api) != Yes {
			t.Errorf("%s: got %v, %v, known as %d", api.Path(), ids, err, f.Prompts.Renders(api))
		}
	}
	for _, q := range server.got("/render") {
		if !json.Valid([]byte(q.body)) || q.key != "Bearer a" {
			t.Errorf("the server got %v", q)
		}
	}
	if f.paths() != "/v1/messages/count_tokens" || len(server.got("")) != 2 {
		t.Errorf("the engine was asked %s, the server %s", f.paths(), server.paths())
	}
}

func TestRender_AServerWithoutTheEndpointRests(t *testing.T) {
	f, server := elsewhere(t, `404 {"detail":"Not Found"}`)
	ask := func(times int) {
		t.Helper()
		_, err := f.prompt(body.Messages, messagesBody, "")
		if !errors.Is(err, ErrNoRender) || len(server.got("")) != times || f.Prompts.Renders(body.Messages) != No || f.Prompts.Renders(body.Responses) != Unknown {
			t.Errorf("got %v after %s, want %d questions; known as %d", err, server.paths(), times, f.Prompts.Renders(body.Messages))
		}
	}
	ask(1)
	f.rig.pass(renderRest - 1)
	ask(1)
	f.rig.pass(1)
	if got := f.Prompts.Renders(body.Messages); got != Unknown {
		t.Errorf("after its rest it is known as %d", got)
	}
	ask(2)
	if f.paths() != "" {
		t.Errorf("the engine was asked %s", f.paths())
	}
}

// A failure of the server is the turn's, not the engine's. One that has rendered has the endpoint, whatever fails later.
func TestRender_AFailureTakesNothingBack(t *testing.T) {
	const renders = `200 {"token_ids":[1]}`
	ofFleet, server := elsewhere(t, "503 {}")
	own := newFake(t, told{"/render": "503 {}"})
	for name, f := range map[*fake]*fake{ofFleet: server, own: own} {
		for n, answer := range []string{"503 {}", renders, "503 {}"} {
			f.then(told{"/render": answer})
			_, err := name.prompt(body.Messages, messagesBody, "")
			var failed *upstream.LegError
			if errors.As(err, &failed) == (answer == renders) || failed != nil && (failed.Instance != f.instance.Name || failed.Status != 503) {
				t.Errorf("%s, %s: %v", f.instance.Name, answer, err)
			}
			if got, want := name.Prompts.Renders(body.Messages), []Finding{Unknown, Yes, Yes}[n]; got != want {
				t.Errorf("%s, answer %d: known as %d, want %d", f.instance.Name, n, got, want)
			}
		}
	}
}
