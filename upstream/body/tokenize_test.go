package body

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
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
		body, why, ok := mustParse(t, row.api, row.body).TokenizeBody(nil)
		if string(body) != row.want || !ok {
			t.Errorf("%s:\n got %s %s\nwant %s", row.name, body, why, row.want)
		}
	}
	// What is known of a shape is not what remains of it.
	changed := mustParse(t, Chat, `{"messages":[],"reasoning_effort":"none"}`)
	changed.FeatureSet()
	changed.Remove("reasoning_effort")
	if body, why, ok := changed.TokenizeBody(nil); !ok || string(body) != `{"messages":[]}` {
		t.Errorf("without its effort: got %s, %q", body, why)
	}
	r := mustParse(t, Chat, `{"messages":[{"role":"assistant","reasoning_content":"a","reasoning_content":"b"}]}`)
	if body, why, ok := r.TokenizeBody(nil); ok || why != WhyUnknownMember {
		t.Errorf("reasoning twice: got %s, %q, want none", body, why)
	}
}

func TestRequest_TokenizeBodyOfTheRecording(t *testing.T) {
	want := recordedBody(t, "03-tokenize-turn2.json")
	var chat map[string]any
	if err := json.Unmarshal(recordedBody(t, "05-decode-turn2-stream-stock.json"), &chat); err != nil {
		t.Fatal(err)
	}
	delete(chat, "kv_transfer_params")
	chat["add_generation_prompt"] = true
	raw, err := json.Marshal(chat)
	if err != nil {
		t.Fatal(err)
	}
	body, why, ok := mustParse(t, Chat, string(raw)).TokenizeBody(nil)
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
		got, ok := mustParse(t, row.api, row.body).Prompt().IDs()
		if ok != row.ok || ok && !slices.Equal(got, row.want) {
			t.Errorf("%s: got %v, %t, want %v, %t", row.body, got, ok, row.want, row.ok)
		}
	}
}

// recordedBody returns the body of a request in testdata/exchanges/vllm-0.32.
func recordedBody(tb testing.TB, name string) []byte {
	tb.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "testdata", "exchanges", "vllm-0.32", name))
	if err != nil {
		tb.Fatal(err)
	}
	var exchange struct {
		Request struct {
			Body json.RawMessage `json:"body"`
		} `json:"request"`
	}
	if err := json.Unmarshal(raw, &exchange); err != nil {
		tb.Fatal(err)
	}
	return exchange.Request.Body
}
