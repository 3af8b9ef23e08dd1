package facts

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"carryover/upstream"
	"carryover/upstream/body"
)

// The second turns of clients, and the requests between a call and its answer, as their SDKs write them.
const (
	hello       = `{"role":"user","content":"hi"}`
	helloParts  = `{"role":"user","content":[{"type":"text","text":"hi"}]}`
	instruction = `{"role":"system","content":"Be kind."}`
	// A whole answer of vLLM 0.32 and 0.33 that openai-python, openai-js or openai-go puts back.
	pushed        = `{"role":"assistant","content":"hello","refusal":null,"annotations":null,"audio":null,"function_call":null,"reasoning":null}`
	pushedCall    = `{"role":"assistant","content":null,"refusal":null,"annotations":null,"audio":null,"function_call":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}],"reasoning":null}`
	pushedThought = `{"role":"assistant","content":"hello","refusal":null,"annotations":null,"audio":null,"function_call":null,"reasoning":"hm"}`
	// LangChain and LlamaIndex; the AI SDK.
	typed        = `{"role":"assistant","content":"hello"}`
	typedCall    = `{"role":"assistant","content":null,"tool_calls":[{"type":"function","id":"c","function":{"name":"f","arguments":"{}"}}]}`
	aiThought    = `{"role":"assistant","content":"hello","reasoning_content":"hm"}`
	aiThoughtRan = `{"role":"assistant","content":null,"reasoning_content":"hm","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}`
	result       = `{"role":"tool","tool_call_id":"c","content":"9"}`
	someTools    = `,"tools":[{"type":"function","function":{"name":"f"}}]`
	autoTools    = someTools + `,"tool_choice":"auto"`
)

func TestLessons_CoverSecondTurnsOfClients(t *testing.T) {
	known := map[string]bool{}
	for _, l := range allLessons() {
		raw := l.request("m")
		shape, comparable := mustParse(t, body.Chat, string(raw)).FeatureSet()
		if !comparable || known[shape] {
			t.Errorf("%s: comparable %t, taught twice %t", shape, comparable, known[shape])
		}
		if len(raw) > 800 { // a quarter of that in tokens, less what is no text
			t.Errorf("%s: %d bytes", shape, len(raw))
		}
		known[shape] = true
	}
	for name, row := range map[string]struct {
		members  string
		messages []string
	}{
		"openai, whole":                      {"", []string{instruction, hello, pushed, hello}},
		"openai, whole, no system":           {"", []string{hello, pushed, hello}},
		"openai, thoughts":                   {"", []string{instruction, hello, pushedThought, hello}},
		"openai, thoughts, no system":        {"", []string{hello, pushedThought, hello}},
		"openai, tools, no call":             {someTools, []string{instruction, hello, pushed, hello}},
		"openai, result":                     {someTools, []string{instruction, hello, pushedCall, result}},
		"openai, turn after a call":          {someTools, []string{hello, pushedCall, result, pushed, hello}},
		"langchain, result":                  {someTools, []string{instruction, hello, typedCall, result}},
		"langchain, turn after a call":       {someTools, []string{instruction, hello, typedCall, result, typed, hello}},
		"llamaindex, result":                 {autoTools, []string{hello, typedCall, result}},
		"llamaindex, turn after a call":      {autoTools, []string{instruction, hello, typedCall, result, typed, hello}},
		"ai sdk":                             {"", []string{instruction, hello, typed, hello}},
		"ai sdk, thoughts":                   {"", []string{instruction, hello, aiThought, hello}},
		"ai sdk, tools, no call":             {autoTools, []string{instruction, hello, typed, hello}},
		"ai sdk, result behind a thought":    {autoTools, []string{instruction, hello, aiThoughtRan, result}},
		"ai sdk, turn after such a call":     {autoTools, []string{instruction, hello, aiThoughtRan, result, aiThought, hello}},
		"opencode, prompts of several parts": {autoTools, []string{instruction, helloParts, typedCall, result, typed, helloParts}},
		"litellm, parts":                     {"", []string{instruction, helloParts, typed, helloParts}},
		"litellm, parts, no system":          {"", []string{helloParts, typed, helloParts}},
	} {
		raw := `{"model":"m","stream":true,"max_tokens":9,"messages":[` + strings.Join(row.messages, ",") + `]` + row.members + `}`
		if shape, _ := mustParse(t, body.Chat, raw).FeatureSet(); !known[shape] {
			t.Errorf("%s: %s is not taught", name, shape)
		}
	}
}

func always() bool { return true }

// teach gives the lessons of an incarnation that uses ids.
func (i *incarnation) teach(ctx context.Context, ready func() bool) Taught {
	return i.Lessons.Teach(ctx, i.engine.models, ready)
}

// Every shape of a simulated engine is known behind its lessons, which pin nothing and are not given twice.
func TestLessons_TeachAnIncarnationOnce(t *testing.T) {
	sim, e := newRig(t).simulate(upstream.RolePrefill, nil)
	e.list(t.Context())
	for range 2 {
		sim.Restart()
		e.Refused()
		s := e.Current(t.Context())
		s.Capability.Probe(t.Context(), body.Chat, "")
		before := len(sim.Requests())
		shown := s.teach(t.Context(), always)
		if shown.Equal != lessonCount || len(shown.Different) != 0 || shown.Unknown != 0 {
			t.Errorf("got %+v, want %d equal", shown, lessonCount)
		}
		legs := 0
		for _, r := range sim.Requests()[before:] {
			if r.Path == body.Chat.Path() {
				legs++
				if bytes.Contains(r.Body, []byte("kv_transfer_params")) || !bytes.Contains(r.Body, []byte(`"max_tokens":1`)) {
					t.Errorf("a lesson's leg is %s", r.Body)
				}
			}
		}
		if legs != lessonCount || len(sim.Pinned()) != 0 {
			t.Errorf("%d legs and %d pins, want %d and none", legs, len(sim.Pinned()), lessonCount)
		}
		asked := len(sim.Requests())
		if s.teach(t.Context(), always); len(sim.Requests()) != asked {
			t.Error("an incarnation was taught twice")
		}
	}
}

// lectured is an engine that uses ids, and answers a lesson as told. It counts prefill legs.
func lectured(t *testing.T, answer func(path string, tools bool) (status int, body string)) (s *incarnation, legs *[]string) {
	t.Helper()
	legs = &[]string{}
	s = newRig(t).incarnationOf(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		if r.URL.Path == body.Chat.Path() {
			*legs = append(*legs, string(raw))
		}
		if strings.HasSuffix(r.URL.Path, "/render") {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		status, text := answer(r.URL.Path, bytes.Contains(raw, []byte(`"tools"`)))
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	})
	s.Capability.usesIDs[body.Chat] = Yes
	s.engine.models = []Model{{ID: "m"}}
	return s, legs
}

const (
	toldIDs     = `{"count":2,"max_model_len":9,"tokens":[1,2]}`
	renderedIDs = `{"prompt_token_ids":[1,2]}`
)

// shapes counts what is known of the lessons with tools, or without.
func (i *incarnation) shapes(t *testing.T, tools bool) (known map[Finding]int) {
	t.Helper()
	known = map[Finding]int{}
	for _, l := range allLessons() {
		if (l.members != "") == tools {
			shape, _ := mustParse(t, body.Chat, string(l.request("m"))).FeatureSet()
			known[i.Parity.Of("m", shape)]++
		}
	}
	return known
}

func TestLessons_ADifferenceExcludesItsShapesOnly(t *testing.T) {
	s, _ := lectured(t, func(path string, tools bool) (int, string) {
		switch {
		case path != "/tokenize":
			return 200, renderedIDs
		case tools:
			return 200, `{"count":1,"tokens":[1]}`
		}
		return 200, toldIDs
	})
	shown := s.teach(t.Context(), always)
	with, without := s.shapes(t, true), s.shapes(t, false)
	if len(with) != 1 || len(without) != 1 || with[No] != len(shown.Different) || without[Yes] != shown.Equal || shown.Equal == 0 {
		t.Errorf("got %v with tools, %v without, shown %+v", with, without, shown)
	}
}

func TestLessons_ARefusalLeavesItsShapesToTurns(t *testing.T) {
	refusal := `{"error":{"message":"\"auto\" tool choice requires --enable-auto-tool-choice","type":"BadRequestError","param":null,"code":400}}`
	s, legs := lectured(t, func(path string, tools bool) (int, string) {
		switch {
		case path == "/tokenize":
			return 200, toldIDs
		case tools:
			return 400, refusal
		}
		return 200, renderedIDs
	})
	shown := s.teach(t.Context(), always)
	with, without := s.shapes(t, true), s.shapes(t, false)
	if len(with) != 1 || with[Unknown] != shown.Unknown || len(without) != 1 || without[Yes] != shown.Equal {
		t.Errorf("got %v with tools, %v without, shown %+v", with, without, shown)
	}
	asked := len(*legs)
	if s.teach(t.Context(), always); len(*legs) != asked {
		t.Error("what an engine has refused was asked again")
	}
}

func TestLessons_EndWithAnEngineThatCannotBeTaught(t *testing.T) {
	for name, answer := range map[string]func(path string, _ bool) (int, string){
		"no ids": func(path string, _ bool) (int, string) {
			return 200, map[bool]string{true: toldIDs, false: `{"id":"x"}`}[path == "/tokenize"]
		},
		"strange ids": func(path string, _ bool) (int, string) {
			return 200, map[bool]string{true: toldIDs, false: `{"prompt_token_ids":[1,null]}`}[path == "/tokenize"]
		},
		"our key is wrong":  func(string, bool) (int, string) { return 401, `{"error":"Unauthorized"}` },
		"without /tokenize": func(string, bool) (int, string) { return 404, `{"detail":"Not Found"}` },
	} {
		s, legs := lectured(t, answer)
		shown := s.teach(t.Context(), always)
		if s.teach(t.Context(), always); len(*legs) > 1 || shown.Equal+len(shown.Different) != 0 {
			t.Errorf("%s: %d legs, shown %+v", name, len(*legs), shown)
		}
	}
}

func TestLessons_AnEngineThatFailsIsLeftAloneForAWhile(t *testing.T) {
	s, legs := lectured(t, func(path string, _ bool) (int, string) {
		if path == "/tokenize" {
			return 200, toldIDs
		}
		return 503, `{"error":"paused"}`
	})
	for n := range maxFailures {
		if s.teach(t.Context(), always); len(*legs) != n+1 {
			t.Fatalf("failure %d: %d legs", n+1, len(*legs))
		}
		if s.teach(t.Context(), always); len(*legs) != n+1 {
			t.Error("asked again at once")
		}
		s.engine.rig.pass(lessonRetry)
	}
	if s.teach(t.Context(), always); len(*legs) != maxFailures {
		t.Error("asked for ever")
	}
}

func TestLessons_GoOnWhereTheyWereInterrupted(t *testing.T) {
	s, legs := lectured(t, func(path string, _ bool) (int, string) {
		if path == "/tokenize" {
			return 200, toldIDs
		}
		return 200, renderedIDs
	})
	if shown := s.teach(t.Context(), func() bool { return len(*legs) < 5 }); shown.Equal != 5 || len(*legs) != 5 {
		t.Errorf("%d legs, shown %+v, want 5", len(*legs), shown)
	}
	over, end := context.WithCancel(t.Context())
	end()
	if s.teach(over, always); len(*legs) != 5 {
		t.Errorf("%d legs behind the end, want 5", len(*legs))
	}
	// What a turn has shown meanwhile needs no lesson.
	shape, _ := mustParse(t, body.Chat, string(allLessons()[7].request("m"))).FeatureSet()
	s.Parity.Learn("", "m", shape, true)
	if s.teach(t.Context(), always); len(*legs) != lessonCount-1 {
		t.Errorf("%d legs, want %d", len(*legs), lessonCount-1)
	}
}

// Each of the first models has lessons, also one that was loaded later; one that has gone ends only its own.
func TestLessons_AreGivenForEachModel(t *testing.T) {
	var asked []string
	s := newRig(t).incarnationOf(func(w http.ResponseWriter, r *http.Request) {
		var q struct{ Model string }
		_ = json.NewDecoder(r.Body).Decode(&q)
		switch {
		case strings.HasSuffix(r.URL.Path, "/render"):
			w.WriteHeader(404)
		case q.Model == "gone":
			w.WriteHeader(404)
			_, _ = io.WriteString(w, `{"error":{"message":"The model does not exist.","type":"NotFoundError","param":"model","code":404}}`)
		case r.URL.Path == "/tokenize":
			_, _ = io.WriteString(w, toldIDs)
		default:
			asked = append(asked, q.Model)
			_, _ = io.WriteString(w, renderedIDs)
		}
	})
	s.Capability.usesIDs[body.Chat] = Yes
	if s.teach(t.Context(), always); len(asked) != 0 {
		t.Error("lessons without a model")
	}
	s.engine.models = []Model{{ID: "gone"}, {ID: `a "model"`}}
	s.teach(t.Context(), always)
	for range 20 {
		s.engine.models = append(s.engine.models, Model{ID: "late"})
	}
	s.teach(t.Context(), always)
	if n := lessonCount; len(asked) != 2*n || asked[0] != `a "model"` || asked[n] != "late" || slices.Contains(asked, "gone") {
		t.Errorf("got %d legs, want %d for each of two models", len(asked), lessonCount)
	}
	for i := range 20 {
		s.engine.models[i].ID = string(rune('A' + i))
	}
	if s.teach(t.Context(), always); len(asked) != (2+maxTaughtModels)*lessonCount {
		t.Errorf("got %d legs, want lessons for eight models", len(asked))
	}
}
