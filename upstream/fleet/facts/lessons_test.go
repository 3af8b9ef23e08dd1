package facts

import (
	"bytes"
	"context"
	"strings"
	"testing"

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

// teach gives the lessons of an incarnation that uses ids, which must make so many legs.
func (f *fake) teach(legs int) Taught {
	f.rig.t.Helper()
	before := len(f.got("/completions"))
	shown := f.Lessons.Teach(f.rig.t.Context(), f.models, always)
	if made := len(f.got("/completions")) - before; made != legs {
		f.rig.t.Errorf("%d legs, want %d; shown %+v", made, legs, shown)
	}
	return shown
}

// Every shape of a simulated engine is known behind its lessons, which pin nothing and are not given twice.
func TestLessons_TeachAnIncarnationOnce(t *testing.T) {
	s := simulate(t, nil)
	for range 2 {
		s.Restart()
		s.incarnation = s.next()
		s.list()
		s.probe(body.Chat, "")
		before := len(s.Requests())
		shown := s.Lessons.Teach(t.Context(), s.models, always)
		if shown.Equal != lessonCount || len(shown.Different) != 0 || shown.Unknown != 0 {
			t.Errorf("got %+v, want %d equal", shown, lessonCount)
		}
		legs := 0
		for _, r := range s.Requests()[before:] {
			if r.Path == body.Chat.Path() {
				legs++
				if bytes.Contains(r.Body, []byte("kv_transfer_params")) || !bytes.Contains(r.Body, []byte(`"max_tokens":1`)) {
					t.Errorf("a lesson's leg is %s", r.Body)
				}
			}
		}
		if legs != lessonCount || len(s.Pinned()) != 0 {
			t.Errorf("%d legs and %d pins, want %d and none", legs, len(s.Pinned()), lessonCount)
		}
		asked := len(s.Requests())
		if s.Lessons.Teach(t.Context(), s.models, always); len(s.Requests()) != asked {
			t.Error("an incarnation was taught twice")
		}
	}
}

// lectured is an engine that uses ids, and answers lessons as told.
func lectured(t *testing.T, answers told) *fake {
	t.Helper()
	f := newFake(t, answers)
	f.Capability.usesIDs[body.Chat] = Yes
	f.models = []Model{{ID: "m"}}
	return f
}

const (
	toldIDs     = `200 {"count":2,"max_model_len":9,"tokens":[1,2]}`
	renderedIDs = `200 {"prompt_token_ids":[1,2]}`
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
	f := lectured(t, told{"/completions": renderedIDs, "/tokenize": toldIDs, `/tokenize "tools"`: `200 {"count":1,"tokens":[1]}`})
	shown := f.teach(lessonCount)
	with, without := f.shapes(t, true), f.shapes(t, false)
	if len(with) != 1 || len(without) != 1 || with[No] != len(shown.Different) || without[Yes] != shown.Equal || shown.Equal == 0 {
		t.Errorf("got %v with tools, %v without, shown %+v", with, without, shown)
	}
}

func TestLessons_ARefusalLeavesItsShapesToTurns(t *testing.T) {
	f := lectured(t, told{
		"/completions": renderedIDs, "/tokenize": toldIDs,
		`/completions "tools"`: `400 {"error":{"message":"\"auto\" tool choice requires --enable-auto-tool-choice","type":"BadRequestError","param":null,"code":400}}`,
	})
	shown := f.teach(lessonCount)
	with, without := f.shapes(t, true), f.shapes(t, false)
	if len(with) != 1 || with[Unknown] != shown.Unknown || len(without) != 1 || without[Yes] != shown.Equal {
		t.Errorf("got %v with tools, %v without, shown %+v", with, without, shown)
	}
	f.teach(0) // what an engine has refused is not asked again
}

func TestLessons_EndWithAnEngineThatCannotBeTaught(t *testing.T) {
	for name, row := range map[string]struct {
		answers told
		legs    int
	}{
		"no ids":            {told{"/tokenize": toldIDs, "/completions": `200 {"id":"x"}`}, 1},
		"strange ids":       {told{"/tokenize": toldIDs, "/completions": `200 {"prompt_token_ids":[1,null]}`}, 1},
		"our key is wrong":  {told{"": `401 {"error":"Unauthorized"}`}, 0},
		"without /tokenize": {told{"": `404 {"detail":"Not Found"}`}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := lectured(t, row.answers)
			if shown := f.teach(row.legs); shown.Equal+len(shown.Different) != 0 {
				t.Errorf("shown %+v", shown)
			}
			f.teach(0)
		})
	}
}

func TestLessons_AnEngineThatFailsIsLeftAloneForAWhile(t *testing.T) {
	f := lectured(t, told{"/tokenize": toldIDs, "/completions": `503 {"error":"paused"}`})
	for range maxFailures {
		f.teach(1)
		f.teach(0)
		f.rig.pass(lessonRetry)
	}
	f.teach(0)
}

func TestLessons_GoOnWhereTheyWereInterrupted(t *testing.T) {
	f := lectured(t, told{"/tokenize": toldIDs, "/completions": renderedIDs})
	if shown := f.Lessons.Teach(t.Context(), f.models, func() bool { return len(f.got("/completions")) < 5 }); shown.Equal != 5 {
		t.Errorf("shown %+v, want 5", shown)
	}
	over, end := context.WithCancel(t.Context())
	end()
	f.Lessons.Teach(over, f.models, always)
	// What a turn has shown meanwhile needs no lesson.
	shape, _ := mustParse(t, body.Chat, string(allLessons()[7].request("m"))).FeatureSet()
	f.Parity.Learn("", "m", shape, true)
	f.teach(lessonCount - 5 - 1)
}

// Each of the first models has lessons, also one that was loaded later; one that has gone ends only its own.
func TestLessons_AreGivenForEachModel(t *testing.T) {
	f := lectured(t, told{
		"/tokenize": toldIDs, "/completions": renderedIDs,
		` "gone"`: `404 {"error":{"message":"The model does not exist.","type":"NotFoundError","param":"model","code":404}}`,
	})
	f.models = nil
	f.teach(0)
	f.models = []Model{{ID: "gone"}, {ID: `a "model"`}}
	f.teach(lessonCount)
	for range 20 {
		f.models = append(f.models, Model{ID: "late"})
	}
	f.teach(lessonCount)
	for n, q := range f.got("/completions") {
		if want := []string{`"model":"a \"model\""`, `"model":"late"`}[n/lessonCount]; !strings.Contains(q.body, want) {
			t.Errorf("leg %d is %s, want %s", n, q.body, want)
		}
	}
	for i := range 20 {
		f.models[i].ID = string(rune('A' + i))
	}
	f.teach(maxTaughtModels * lessonCount)
}
