package body

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestRequest_FeatureSet(t *testing.T) {
	for _, row := range []struct{ body, want string }{
		// plain
		{`{"messages":[{"role":"user","content":"hi"}]}`, `chat;"user":s;`},
		// what does not shape the prompt
		{`{"model":"m","messages":[{"role":"user","content":"hi"}],"temperature":0.7,"stream":true,"stream_options":{},"stop":["x"],"seed":1,"user":"u","metadata":{"a":1},"prompt_cache_key":"k","conversation_id":"c","session_id":"s","cache_salt":"z","vllm_xargs":{"a":1},"echo":false,"logprobs":true}`, `chat;"user":s;`},
		// null is absent
		{`{"messages":[{"role":"user","content":"hi"}],"tools":null,"documents":null,"truncate_prompt_tokens":null,"from_the_future":null,"echo":null}`, `chat;"user":s;`},
		// but not in tool_choice
		{`{"messages":[{"role":"user","content":"hi"}],"tool_choice":null}`, `chat;"tool_choice"=null;"user":s;`},
		// names in any order
		{`{"tools":[],"messages":[{"role":"user","content":"hi"}],"documents":[],"chat_template":"x"}`, `chat;"chat_template";"documents";"tools";"user":s;`},
		// tool choice by name
		{`{"messages":[{"role":"user","content":"hi"}],"tool_choice":{"type":"function","function":{"name":"f"}}}`, `chat;"tool_choice"=named;"user":s;`},
		// tool choice by mode
		{`{"messages":[{"role":"user","content":"hi"}],"tool_choice":"required"}`, `chat;"tool_choice"="required";"user":s;`},
		// values that select branches
		{`{"messages":[{"role":"user","content":"hi"}],"reasoning_effort":"low","add_generation_prompt":false,"continue_final_message":true,"response_format":{"type":"json_schema","json_schema":{}}}`,
			`chat;"add_generation_prompt"=false;"continue_final_message"=true;"reasoning_effort"="low";"response_format"="json_schema";"user":s;`},
		// keys of template arguments
		{`{"messages":[{"role":"user","content":"hi"}],"chat_template_kwargs":{"enable_thinking":false,"a":{"b":1}}}`, `chat;"chat_template_kwargs"="a","enable_thinking";"user":s;`},
		// separators in names stay names
		{`{"messages":[{"role":"user","content":"hi"}],"chat_template_kwargs":{"a\",\"b":1}}`, `chat;"chat_template_kwargs"="a\",\"b";"user":s;`},
		// roles and what they have
		{`{"messages":[
			{"role":"user","content":[{"type":"text","text":"a"},{"type":"input_text","text":"b","cache_control":{}},"c"],"name":"n"},
			{"role":"assistant","content":null,"tool_calls":[{"id":"1"}],"reasoning":"r"},
			{"role":"tool","content":"x","tool_call_id":"1"},
			{"content":"y","role":"user"},
			{"role":"assistant","content":"z","tool_calls":null,"reasoning":null,"name":null,"reasoning_content":"q"}]}`,
			`chat;"assistant":sctr;"tool":s;"user":spn;`},
		// escaped names
		{`{"messages":[{"r\u006fle":"us\u0065r","c\u006fntent":[{"typ\u0065":"t\u0065xt","text":""}]}],"t\u006fols":[]}`, `chat;"tools";"user":p;`},
		// no messages
		{`{"messages":[]}`, `chat;`},
		// empty parts
		{`{"messages":[{"role":"user","content":[]}]}`, `chat;"user":p;`},
		// empty part
		{`{"messages":[{"role":"user","content":[{}]}]}`, `chat;"user":p;`},
	} {
		got, comparable := mustParse(t, Chat, row.body).FeatureSet()
		if got != row.want || !comparable {
			t.Errorf("%s:\n got %s %t\nwant %s", row.body, got, comparable, row.want)
		}
	}
	got, comparable := mustParse(t, Text, `{"model":"m","prompt":"x","add_special_tokens":false,"max_tokens":3}`).FeatureSet()
	if want := `text;"add_special_tokens";`; got != want || !comparable {
		t.Errorf("text: got %s %t, want %s", got, comparable, want)
	}
}

func TestRequest_NotComparable(t *testing.T) {
	message := func(m string) string { return `{"messages":[` + m + `]}` }
	type kind struct {
		api API
		why string
	}
	for kind, bodies := range map[kind][]string{
		{Chat, WhyUnknownMember}: {
			`{"messages":[{"role":"user","content":"hi"}],"from_the_future":1}`,                  // unknown member
			`{"messages":[{"role":"user","content":"hi"}],"verbosity":"low"}`,                    // unknown member that vLLM ignores
			`{"messages":[{"role":"user","content":"hi"}],"functions":[]}`,                       // old name of tools
			`{"messages":[{"role":"user","content":"hi"}],"prompt":"x"}`,                         // prompt in chat
			`{"messages":[{"role":"user","content":"hi"}],"reasoning_effort":"none"}`,            // effort none
			`{"messages":[{"role":"user","content":"hi"}],"reasoning_effort":"heroic"}`,          // effort unknown
			`{"messages":[{"role":"user","content":"hi"}],"tool_choice":"maybe"}`,                // tool choice unknown
			`{"messages":[{"role":"user","content":"hi"}],"add_generation_prompt":"yes"}`,        // flag as a word
			`{"messages":[{"role":"user","content":"hi"}],"response_format":{"type":"xml"}}`,     // format unknown
			`{"messages":[{"role":"user","content":"hi"}],"response_format":{}}`,                 // format without type
			`{"messages":[{"role":"user","content":"hi"}],"response_format":"text"}`,             // format no object
			`{"messages":[{"role":"user","content":"hi"}],"chat_template_kwargs":[]}`,            // template arguments no object
			`{"messages":[{"role":"user","content":"hi"}],"chat_template_kwargs":{"a":1,"a":2}}`, // template arguments twice
			message(`{"content":"x"}`),             // no role
			message(`{"role":null,"content":"x"}`), // role null
			message(`"x"`),                         // message no object
			message(`{}`),                          // empty message
			`{"messages":"x"}`,                     // messages no list
			`{}`,                                   // messages absent
		},
		{Chat, WhyTruncate}: {
			`{"messages":[{"role":"user","content":"hi"}],"truncate_prompt_tokens":5}`, // truncated
		},
		{Chat, WhyEcho}: {
			`{"messages":[{"role":"user","content":"hi"}],"echo":true}`, // echo
		},
		{Chat, WhyContent}: {
			message(`{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:"}}]}`), // image
		},
		{Chat, WhyTooComplex}: {
			message(strings.TrimSuffix(manyRoles(maxRoles+1), ",")), // too many roles
			`{"messages":[{"role":"user","content":"hi"}],"chat_template_kwargs":{"` + strings.Repeat("k", 256) + `":1,"` + strings.Repeat("l", 256) + `":1,"` + strings.Repeat("m", 256) + `":1,"` + strings.Repeat("n", 256) + `":1}}`, // too long a key
		},
		{Text, WhyUnknownMember}: {
			`{"prompt":[1,2]}`,                      // ids
			`{"prompt":["a"]}`,                      // batch
			`{"prompt":"x","prompt_embeds":"eA=="}`, // embeddings
			`{"prompt":"x","suffix":"y"}`,           // suffix
			`{"prompt":"x","messages":[]}`,          // messages in text
		},
	} {
		for _, body := range bodies {
			r := mustParse(t, kind.api, body)
			if key, comparable := r.FeatureSet(); comparable {
				t.Errorf("%.300s: comparable as %s", body, key)
			}
			if got, why, ok := r.TokenizeBody(nil); ok || why != kind.why {
				t.Errorf("%.300s: got %s, %q, want why %q", body, got, why, kind.why)
			}
		}
	}
}

func manyRoles(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"role":"r%d","content":""},`, i)
	}
	return b.String()
}

// vLLM's own list of members, so that a new version shows what has to be sorted:
// ChatCompletionRequest and CompletionRequest of 0.33.
const chatMembers = `model frequency_penalty logit_bias logprobs top_logprobs max_tokens max_completion_tokens n presence_penalty response_format seed stop stream stream_options temperature top_p tools tool_choice reasoning_effort thinking_token_budget include_reasoning parallel_tool_calls user use_beam_search top_k min_p repetition_penalty watermarking length_penalty stop_token_ids include_stop_str_in_output ignore_eos min_tokens skip_special_tokens spaces_between_special_tokens truncate_prompt_tokens truncation_side prompt_logprobs logprob_token_ids allowed_token_ids bad_words echo add_generation_prompt continue_final_message add_special_tokens documents chat_template chat_template_kwargs media_io_kwargs mm_processor_kwargs structured_outputs priority request_id session_id return_tokens_as_token_ids return_token_ids routed_experts_prompt_start return_token_offsets return_prompt_text mm_payload return_mm_kwargs cache_salt vllm_xargs repetition_detection stream_interval return_weight_versions`

func TestMembers_EachOfVLLMsIsSortedOnce(t *testing.T) {
	for name := range strings.FieldsSeq(chatMembers) {
		if shapesPrompt(name) == leavesPrompt(name) {
			t.Errorf("%s: shapes the prompt %t, leaves it %t, want one of them", name, shapesPrompt(name), leavesPrompt(name))
		}
	}
	for _, name := range []string{"prompt_embeds", "messages", "prompt", "kv_transfer_params"} {
		if shapesPrompt(name) || leavesPrompt(name) {
			t.Errorf("%s is in a list", name)
		}
	}
}

func FuzzFeatureSet(f *testing.F) {
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := ParseRequest(Chat, raw)
		if err != nil {
			return
		}
		key, comparable := r.FeatureSet()
		if len(key) > 8*len(raw)+64 {
			t.Fatalf("%d bytes of features of a body of %d", len(key), len(raw))
		}
		body, why, ok := r.TokenizeBody(nil)
		if !comparable && (ok || why == "") {
			t.Fatalf("%q is not comparable and has body %q, why %q", raw, body, why)
		}
		if !ok {
			return
		}
		if !json.Valid(body) {
			t.Fatalf("%q gives %q", raw, body)
		}
		again, err := ParseRequest(Chat, body)
		if err != nil {
			t.Fatalf("%q gives %q: %v", raw, body, err)
		}
		// What /tokenize gets is comparable itself and needs no translation any more.
		twice, why, ok := again.TokenizeBody(nil)
		if why == WhyTooComplex {
			return // the translation has added template arguments
		}
		if inRoom, _, ok := again.TokenizeBody(append([]byte("what was there"), body...)); !ok || !bytes.Equal(inRoom, twice) {
			t.Fatalf("%q gives %q, in room %q", body, twice, inRoom)
		}
		again.FeatureSet()
		if known, _, ok := again.TokenizeBody(nil); !ok || !bytes.Equal(known, twice) {
			t.Fatalf("%q gives %q, once its shape is known %q", body, twice, known)
		}
		if !ok || sorted(t, twice) != sorted(t, body) {
			t.Fatalf("%q gives %q, then %q (%s)", raw, body, twice, why)
		}
	})
}

// sorted returns a JSON text with its keys in order.
func sorted(t *testing.T, raw []byte) string {
	t.Helper()
	var value any
	must(t, json.Unmarshal(raw, &value))
	out, err := json.Marshal(value)
	must(t, err)
	return string(out)
}
