package facts

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/vllmsim"
)

// rendered asks an engine what it computes by itself.
func rendered(r *rig, e *engine, req *body.Request) []uint32 {
	r.t.Helper()
	answer, err := r.Client.Prefill(r.t.Context(), upstream.Leg{Instance: e.Instance(), API: req.API, Body: req.PrefillBody(body.LegEdit{ReturnTokenIDs: true})})
	if err != nil {
		r.t.Fatal(err)
	}
	ids, ok := rawjson.ParseIDs(answer.PromptIDs)
	if !ok || len(ids) == 0 {
		r.t.Fatalf("prefill's ids: %s", answer.PromptIDs)
	}
	return ids
}

func TestTokenize_GivesWhatPrefillRenders(t *testing.T) {
	for name, row := range map[string]struct {
		api  body.API
		body string
	}{
		"plain":     {body.Chat, `{"model":"sim","messages":[{"role":"system","content":"You answer."},{"role":"user","content":"And for how long?"}],"temperature":0}`},
		"parts":     {body.Chat, `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}`},
		"tools":     {body.Chat, `{"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f","parameters":{}}}],"tool_choice":"auto"}`},
		"documents": {body.Chat, `{"messages":[{"role":"user","content":"a"}],"documents":[{"title":"t","text":"x"}]}`},
		"effort":    {body.Chat, `{"messages":[{"role":"user","content":"a"}],"reasoning_effort":"low","chat_template_kwargs":{"x":1}}`},
		"reasoning": {body.Chat, `{"messages":[{"role":"user","content":"a"},{"role":"assistant","reasoning_content":"because","content":"b"},{"role":"user","content":"c"}]}`},
		"continued": {body.Chat, `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}],"continue_final_message":true,"add_generation_prompt":false}`},
		"text":      {body.Text, `{"model":"sim","prompt":"The lease of a block ends"}`},
		"ids":       {body.Text, `{"prompt":[5,6,7]}`},
	} {
		for _, render := range []bool{false, true} {
			r := newRig(t)
			_, e := r.simulate(upstream.RolePrefill, func(c *vllmsim.Config) { c.Render = render })
			req := mustParse(t, row.api, row.body)
			want := rendered(r, e, req)
			got, err := e.Current(t.Context()).Prompts.ReadSoon(t.Context(), req, "")
			if err != nil || !slices.Equal(got.IDs, want) {
				t.Errorf("%s, render %t: got %v, error %v, want %v", name, render, got.IDs, err, want)
			}
		}
	}
}

func TestTokenize_LearnsOncePerIncarnationThatNothingIsRendered(t *testing.T) {
	const render = "/v1/chat/completions/render"
	sim, e := newRig(t).simulate(upstream.RolePrefill, nil)
	chat, prompt := mustParse(t, body.Chat, `{`+oneMessage+`}`), mustParse(t, body.Text, `{"prompt":"x"}`)
	ask := func(r *body.Request) {
		t.Helper()
		if prompt, err := e.Current(t.Context()).Prompts.ReadSoon(t.Context(), r, ""); err != nil || len(prompt.IDs) == 0 {
			t.Fatalf("got %v, %v", prompt.IDs, err)
		}
	}
	ask(prompt)
	ask(chat)
	ask(chat)
	if got, want := paths(sim), []string{"/metrics", "/tokenize", render, "/tokenize", "/tokenize"}; !slices.Equal(got, want) {
		t.Errorf("asked %v, want %v", got, want)
	}
	sim.Restart()
	on := true
	if err := sim.Switch(vllmsim.Switches{Render: &on}); err != nil {
		t.Fatal(err)
	}
	e.Refused()
	before := len(sim.Requests())
	ask(chat)
	ask(chat)
	if got, want := paths(sim)[before:], []string{"/metrics", render, render}; !slices.Equal(got, want) {
		t.Errorf("after the restart asked %v, want %v", got, want)
	}
}

func TestTokenize_RendersTheClientsRequestUnstreamed(t *testing.T) {
	var got map[string]any
	s := newRig(t).incarnationOf(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			_, _ = io.WriteString(w, "process_start_time_seconds 5\n")
			return
		}
		raw, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(raw, &got); err != nil || r.Header.Get("Authorization") != "Bearer a" {
			t.Errorf("asked %s with %v: %v", r.URL.Path, r.Header, err)
		}
		answerJSON(`{"token_ids":[1,2]}`)(w, r)
	})
	r := mustParse(t, body.Chat, `{"messages":[],"stream":true,"stream_options":{"include_usage":true},"tool_choice":null}`)
	prompt, err := s.Prompts.ReadSoon(t.Context(), r, "Bearer a")
	if want := map[string]any{"messages": []any{}, "tool_choice": nil}; err != nil || len(prompt.IDs) != 2 || !reflect.DeepEqual(got, want) {
		t.Errorf("rendered %v as %v, %v, want %v", got, prompt.IDs, err, want)
	}
}

// Only an endpoint that is not there is gone round.
func TestTokenize_AFailureToRenderIsFinal(t *testing.T) {
	for _, row := range []struct {
		answer string
		status int
		falls  bool
	}{
		{recorded(t, "13-render-disabled.json"), 403, true},
		{`{"detail":"Not Found"}`, 404, true},
		{`{"detail":"Method Not Allowed"}`, 405, true},
		{recorded(t, "15-unknown-model.json"), 404, false},
		{`{"error":{"message":"m"}}`, 500, false},
		{`{"token_ids":[]}`, 200, false},
		{`{"tokens":[1]}`, 200, false},
		{`{"token_ids":["1"]}`, 200, false},
		{`[]`, 200, false},
	} {
		var asked []string
		s := newRig(t).incarnationOf(func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, r.URL.Path)
			switch {
			case r.URL.Path == "/metrics":
				_, _ = io.WriteString(w, "process_start_time_seconds 5\n")
			case strings.HasSuffix(r.URL.Path, "/render"):
				w.WriteHeader(row.status)
				_, _ = io.WriteString(w, row.answer)
			default:
				answerJSON(`{"count":1,"tokens":[9]}`)(w, r)
			}
		})
		prompt, err := s.Prompts.ReadSoon(t.Context(), mustParse(t, body.Chat, `{`+oneMessage+`}`), "")
		if (err == nil) != row.falls || slices.Contains(asked, "/tokenize") != row.falls || row.falls && len(prompt.IDs) != 1 {
			t.Errorf("%d %.40s: got %v, %v after %v", row.status, row.answer, prompt.IDs, err, asked)
		}
	}
}

func TestTokenize_RefusesBadAnswers(t *testing.T) {
	for _, answer := range []string{
		`{"tokens":[1,2],"count":3}`, `{"tokens":[]}`, `{"tokens":null}`, `{"tokens":[1.5]}`, `{"tokens":[-1]}`, `{"tokens":"1"}`,
		`{"tokens":[1]`, `{"tokens":[1]}x`, `{"tokens":[1],"tokens":[2]}`, `{}`, `[]`, `not JSON`,
	} {
		s := newRig(t).incarnationOf(answerJSON(answer))
		prompt, err := s.Prompts.ReadSoon(t.Context(), mustParse(t, body.Text, `{"prompt":"x"}`), "")
		if err == nil {
			t.Errorf("%s: got %v", answer, prompt.IDs)
		}
	}
	s := newRig(t).incarnationOf(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
	if _, err := s.Prompts.ReadSoon(t.Context(), mustParse(t, body.Text, `{"prompt":"x"}`), ""); err == nil {
		t.Error("a status 500 is an answer")
	}
	refused := tells(newRig(t).add(upstream.RolePrefill, "p", "http://127.0.0.1:1"), "1")
	if _, err := refused.Prompts.ReadSoon(t.Context(), mustParse(t, body.Chat, `{`+oneMessage+`}`), ""); err == nil {
		t.Error("nothing listens, and there are ids")
	}
}

func TestTokenize_AsksNothingOfWhatIsNotComparable(t *testing.T) {
	sim, e := newRig(t).simulate(upstream.RolePrefill, nil)
	_, err := tells(e, "1").Prompts.ReadSoon(t.Context(), mustParse(t, body.Chat, `{`+oneMessage+`,"reasoning_effort":"none"}`), "")
	if !errors.Is(err, ErrNotComparable) || !strings.Contains(err.Error(), body.WhyUnknownMember) || len(sim.Requests()) != 0 {
		t.Errorf("got %v after %v", err, paths(sim))
	}
}

func TestTokenize_IsBoundedInTime(t *testing.T) {
	leave := make(chan struct{})
	defer close(leave)
	s := newRig(t).incarnationOf(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-leave:
		case <-r.Context().Done():
		}
	})
	s.engine.rig.AskLimit = 20 * time.Millisecond
	began := time.Now()
	if _, err := s.Prompts.ReadSoon(t.Context(), mustParse(t, body.Text, `{"prompt":"x"}`), ""); err == nil {
		t.Error("an engine that does not answer has given ids")
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("took %v, limit 20 ms", took)
	}
}

// That it offers none could not be remembered of one that is not known.
func TestTokenize_AsksAnUnknownIncarnationForNoRendering(t *testing.T) {
	sim, e := newRig(t).simulate(upstream.RolePrefill, nil)
	prompt, err := e.Last().Prompts.ReadSoon(t.Context(), mustParse(t, body.Chat, `{`+oneMessage+`}`), "")
	if got, want := paths(sim), []string{"/tokenize"}; err != nil || len(prompt.IDs) == 0 || !slices.Equal(got, want) {
		t.Errorf("got %v, %v after %v, want ids after %v", prompt.IDs, err, got, want)
	}
}
