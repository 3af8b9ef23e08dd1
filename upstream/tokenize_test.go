package upstream

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"carryover/sse/rawjson"
	"carryover/upstream/vllmsim"
)

func TestRequest_TokenizeBody(t *testing.T) {
	for _, row := range []struct {
		name, body, want string
		api              API
	}{
		{
			name: "what /tokenize takes",
			body: `{"model":"m","messages":[{"role":"user","content":"\u00e9"}],"tools":[ {} ],"chat_template":"t","chat_template_kwargs":{"a" : 1},"add_generation_prompt":false,"continue_final_message":true,"add_special_tokens":true,"mm_processor_kwargs":{"b":1},"media_io_kwargs":{},"temperature":1.50,"tool_choice":"none","response_format":{"type":"text"},"stream":true,"user":"u","truncation_side":"left","structured_outputs":{}}`,
			want: `{"model":"m","messages":[{"role":"user","content":"\u00e9"}],"tools":[ {} ],"chat_template":"t","add_generation_prompt":false,"continue_final_message":true,"add_special_tokens":true,"mm_processor_kwargs":{"b":1},"media_io_kwargs":{},"chat_template_kwargs":{"a" : 1}}`,
		},
		{
			name: "null goes",
			body: `{"messages":[],"tools":null,"chat_template_kwargs":null,"add_generation_prompt":null,"documents":null,"reasoning_effort":null}`,
			want: `{"messages":[]}`,
		},
		{
			name: "documents and effort become template arguments",
			body: `{"documents":[{"title":"t"}],"messages":[],"reasoning_effort":"low"}`,
			want: `{"messages":[],"chat_template_kwargs":{"documents":[{"title":"t"}],"reasoning_effort":"low","enable_thinking":true}}`,
		},
		{
			name: "and win over those",
			body: `{"chat_template_kwargs":{"documents":1,"enable_thinking":null,"reasoning_effort":"max","z":2},"documents":[],"messages":[],"reasoning_effort":"low"}`,
			want: `{"messages":[],"chat_template_kwargs":{"documents":[],"enable_thinking":null,"reasoning_effort":"low","z":2}}`,
		},
		{
			name: "effort among the arguments stays",
			body: `{"chat_template_kwargs":{"reasoning_effort":"none"},"messages":[]}`,
			want: `{"messages":[],"chat_template_kwargs":{"reasoning_effort":"none"}}`,
		},
		{
			name: "reasoning under its new name",
			body: `{"messages":[ {"role":"user","content":"a"} , {"role":"assistant","reasoning_content":"r\u00e9","content":"b"},{"reasoning":"kept","role":"assistant","reasoning_content":"dropped","content":"c"},{"role":"assistant","reasoning":null,"reasoning\u005fcontent":"d"},{"role":"assistant","reasoning_content":null,"content":"e"} ]}`,
			want: `{"messages":[ {"role":"user","content":"a"} , {"role":"assistant","content":"b","reasoning":"r\u00e9"},{"reasoning":"kept","role":"assistant","content":"c"},{"role":"assistant","reasoning":"d"},{"role":"assistant","content":"e"} ]}`,
		},
		{
			name: "text", api: Text,
			body: `{"model":"m","prompt":"a\nb","add_special_tokens":false,"max_tokens":4,"chat_template_kwargs":{"a":1}}`,
			want: `{"model":"m","prompt":"a\nb","add_special_tokens":false}`,
		},
	} {
		body, why, ok := mustParse(t, row.api, row.body).TokenizeBody()
		if string(body) != row.want || !ok {
			t.Errorf("%s:\n got %s %s\nwant %s", row.name, body, why, row.want)
		}
	}
	r := mustParse(t, Chat, `{"messages":[{"role":"assistant","reasoning_content":"a","reasoning_content":"b"}]}`)
	if body, why, ok := r.TokenizeBody(); ok || why != WhyMessages {
		t.Errorf("reasoning twice: got %s, %q, want none", body, why)
	}
}

func TestRequest_TokenizeBodyOfTheRecording(t *testing.T) {
	want := recorded(t, "03-tokenize-turn2.json").Request.Body
	var chat map[string]any
	if err := json.Unmarshal(recorded(t, "05-decode-turn2-stream-stock.json").Request.Body, &chat); err != nil {
		t.Fatal(err)
	}
	delete(chat, "kv_transfer_params")
	chat["add_generation_prompt"] = true
	raw, err := json.Marshal(chat)
	if err != nil {
		t.Fatal(err)
	}
	body, why, ok := mustParse(t, Chat, string(raw)).TokenizeBody()
	if !ok {
		t.Fatalf("not comparable: %s", why)
	}
	if sorted(t, body) != sorted(t, want) {
		t.Errorf("got  %s\nwant %s", body, want)
	}
}

func TestRequest_PromptIDs(t *testing.T) {
	for _, row := range []struct {
		body string
		api  API
		want []uint32
		ok   bool
	}{
		{`{"prompt":[56, 272]}`, Text, []uint32{56, 272}, true},
		{`{"prompt":[]}`, Text, nil, false},
		{`{"prompt":[-1]}`, Text, nil, false},
		{`{"prompt":[1,"a"]}`, Text, nil, false},
		{`{"prompt":[[1]]}`, Text, nil, false},
		{`{"prompt":"x"}`, Text, nil, false},
		{`{"prompt":[1]}`, Chat, nil, false},
	} {
		got, ok := mustParse(t, row.api, row.body).PromptIDs()
		if ok != row.ok || ok && !slices.Equal(got, row.want) {
			t.Errorf("%s: got %v, %t, want %v, %t", row.body, got, ok, row.want, row.ok)
		}
	}
}

func newTestTokenizer(t *testing.T) *Tokenizer {
	t.Helper()
	incarnations, _ := clocked(t)
	return NewTokenizer(incarnations.client, incarnations, time.Minute)
}

// rendered asks an engine what it computes by itself.
func rendered(t *testing.T, instance *Instance, r *Request) []uint32 {
	t.Helper()
	answer, err := newTestClient(t, "").Prefill(t.Context(), Leg{Instance: instance, API: r.API(), Body: r.PrefillBody(PrefillEdit{ReturnTokenIDs: true})})
	if err != nil {
		t.Fatal(err)
	}
	ids, ok := rawjson.ParseIDs(answer.PromptIDs)
	if !ok || len(ids) == 0 {
		t.Fatalf("prefill's ids: %s", answer.PromptIDs)
	}
	return ids
}

func TestTokenizer_GivesWhatPrefillRenders(t *testing.T) {
	for name, row := range map[string]struct {
		api  API
		body string
	}{
		"plain":     {Chat, `{"model":"sim","messages":[{"role":"system","content":"You answer."},{"role":"user","content":"And for how long?"}],"temperature":0}`},
		"parts":     {Chat, `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}`},
		"tools":     {Chat, `{"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f","parameters":{}}}],"tool_choice":"auto"}`},
		"documents": {Chat, `{"messages":[{"role":"user","content":"a"}],"documents":[{"title":"t","text":"x"}]}`},
		"effort":    {Chat, `{"messages":[{"role":"user","content":"a"}],"reasoning_effort":"low","chat_template_kwargs":{"x":1}}`},
		"reasoning": {Chat, `{"messages":[{"role":"user","content":"a"},{"role":"assistant","reasoning_content":"because","content":"b"},{"role":"user","content":"c"}]}`},
		"continued": {Chat, `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}],"continue_final_message":true,"add_generation_prompt":false}`},
		"text":      {Text, `{"model":"sim","prompt":"The lease of a block ends"}`},
		"ids":       {Text, `{"prompt":[5,6,7]}`},
	} {
		for _, render := range []bool{false, true} {
			_, instance := simulate(t, RolePrefill, func(c *vllmsim.Config) { c.Render = render })
			r := mustParse(t, row.api, row.body)
			want := rendered(t, instance, r)
			got, err := newTestTokenizer(t).Tokenize(t.Context(), instance, r, "")
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%s, render %t: got %v, error %v, want %v", name, render, got, err, want)
			}
		}
	}
}

func TestTokenizer_LearnsOncePerStartThatNothingIsRendered(t *testing.T) {
	const render = "/v1/chat/completions/render"
	sim, instance := simulate(t, RolePrefill, nil)
	tokenizer := newTestTokenizer(t)
	chat, prompt := mustParse(t, Chat, `{`+oneMessage+`}`), mustParse(t, Text, `{"prompt":"x"}`)
	ask := func(r *Request) {
		t.Helper()
		if ids, err := tokenizer.Tokenize(t.Context(), instance, r, ""); err != nil || len(ids) == 0 {
			t.Fatalf("got %v, %v", ids, err)
		}
	}
	ask(prompt)
	ask(chat)
	ask(chat)
	if got, want := paths(sim), []string{"/tokenize", "/metrics", render, "/tokenize", "/tokenize"}; !slices.Equal(got, want) {
		t.Errorf("asked %v, want %v", got, want)
	}
	sim.Restart()
	on := true
	if err := sim.Switch(vllmsim.Switches{Render: &on}); err != nil {
		t.Fatal(err)
	}
	tokenizer.incarnations.Forget(instance)
	before := len(sim.Requests())
	ask(chat)
	ask(chat)
	if got, want := paths(sim)[before:], []string{"/metrics", render, render}; !slices.Equal(got, want) {
		t.Errorf("after the restart asked %v, want %v", got, want)
	}
}

func TestTokenizer_RendersTheClientsRequestUnstreamed(t *testing.T) {
	var got map[string]any
	instance := engine(t, RolePrefill, func(w http.ResponseWriter, r *http.Request) {
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
	r := mustParse(t, Chat, `{"messages":[],"stream":true,"stream_options":{"include_usage":true},"tool_choice":null}`)
	ids, err := newTestTokenizer(t).Tokenize(t.Context(), instance, r, "Bearer a")
	if want := map[string]any{"messages": []any{}, "tool_choice": nil}; err != nil || len(ids) != 2 || !reflect.DeepEqual(got, want) {
		t.Errorf("rendered %v as %v, %v, want %v", got, ids, err, want)
	}
}

// Only an endpoint that is not there is gone round.
func TestTokenizer_AFailureToRenderIsFinal(t *testing.T) {
	for _, row := range []struct {
		answer string
		status int
		falls  bool
	}{
		{string(recorded(t, "13-render-disabled.json").Response.JSON), 403, true},
		{`{"detail":"Not Found"}`, 404, true},
		{`{"detail":"Method Not Allowed"}`, 405, true},
		{string(recorded(t, "15-unknown-model.json").Response.JSON), 404, false},
		{`{"error":{"message":"m"}}`, 500, false},
		{`{"token_ids":[]}`, 200, false},
		{`{"tokens":[1]}`, 200, false},
		{`{"token_ids":["1"]}`, 200, false},
		{`[]`, 200, false},
	} {
		var asked []string
		instance := engine(t, RolePrefill, func(w http.ResponseWriter, r *http.Request) {
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
		ids, err := newTestTokenizer(t).Tokenize(t.Context(), instance, mustParse(t, Chat, `{`+oneMessage+`}`), "")
		if (err == nil) != row.falls || slices.Contains(asked, "/tokenize") != row.falls || row.falls && len(ids) != 1 {
			t.Errorf("%d %.40s: got %v, %v after %v", row.status, row.answer, ids, err, asked)
		}
	}
}

func TestTokenizer_RefusesBadAnswers(t *testing.T) {
	for _, answer := range []string{
		`{"tokens":[1,2],"count":3}`, `{"tokens":[]}`, `{"tokens":null}`, `{"tokens":[1.5]}`, `{"tokens":[-1]}`, `{"tokens":"1"}`,
		`{"tokens":[1]`, `{"tokens":[1]}x`, `{"tokens":[1],"tokens":[2]}`, `{}`, `[]`, `not JSON`,
	} {
		// Without an incarnation nothing is asked for rendering.
		instance := engine(t, RolePrefill, answerJSON(answer))
		ids, err := newTestTokenizer(t).Tokenize(t.Context(), instance, mustParse(t, Text, `{"prompt":"x"}`), "")
		if err == nil {
			t.Errorf("%s: got %v", answer, ids)
		}
	}
	instance := engine(t, RolePrefill, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
	if _, err := newTestTokenizer(t).Tokenize(t.Context(), instance, mustParse(t, Text, `{"prompt":"x"}`), ""); err == nil {
		t.Error("a status 500 is an answer")
	}
	refused := &Instance{BaseURL: "http://127.0.0.1:1"}
	if _, err := newTestTokenizer(t).Tokenize(t.Context(), refused, mustParse(t, Chat, `{`+oneMessage+`}`), ""); err == nil {
		t.Error("nobody listens, and there are ids")
	}
}

func TestTokenizer_AsksNobodyAboutWhatIsNotComparable(t *testing.T) {
	sim, instance := simulate(t, RolePrefill, nil)
	_, err := newTestTokenizer(t).Tokenize(t.Context(), instance, mustParse(t, Chat, `{`+oneMessage+`,"reasoning_effort":"none"}`), "")
	if !errors.Is(err, ErrNotComparable) || !strings.Contains(err.Error(), WhyReasoningEffort) || len(sim.Requests()) != 0 {
		t.Errorf("got %v after %v", err, paths(sim))
	}
}

func TestTokenizer_IsBoundedInTime(t *testing.T) {
	leave := make(chan struct{})
	defer close(leave)
	instance := engine(t, RolePrefill, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-leave:
		case <-r.Context().Done():
		}
	})
	client := newTestClient(t, "")
	tokenizer := NewTokenizer(client, NewIncarnations(client, 2*time.Second), 20*time.Millisecond)
	began := time.Now()
	if _, err := tokenizer.Tokenize(t.Context(), instance, mustParse(t, Text, `{"prompt":"x"}`), ""); err == nil {
		t.Error("an engine that does not answer has given ids")
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("took %v, limit 20 ms", took)
	}
}

func TestTokenizer_MemoryIsBounded(t *testing.T) {
	tokenizer := newTestTokenizer(t)
	for i := range maxRemembered {
		tokenizer.plain[strconv.Itoa(i)] = "1"
	}
	tokenizer.remember(&Instance{BaseURL: "http://a"}, "1")
	if len(tokenizer.plain) != 1 {
		t.Errorf("remembers %d, want the last one", len(tokenizer.plain))
	}
}
