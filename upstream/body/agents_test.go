package body

import (
	"encoding/json"
	"errors"
	"hash/maphash"
	"maps"
	"strings"
	"testing"

	"carryover/sse/rawjson"
)

// claudeBody is a request as Claude Code sends it, with one of two attributions.
func claudeBody(cch string) string {
	return `{"model":"m","max_tokens":4096,"stream":true,"thinking":{"type":"enabled","budget_tokens":2048},"metadata":{"user_id":"u_session_1"},
"system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2; cch=` + cch + `;"},{"type":"text","text":"You are an agent.","cache_control":{"type":"ephemeral"}}],
"tools":[{"name":"Read","input_schema":{"type":"object"}}],"stop_sequences":["END"],
"messages":[{"role":"user","content":"Look."},{"role":"assistant","content":[{"type":"thinking","thinking":"Hm.","signature":"s"},{"type":"text","text":"I look."},
{"type":"tool_use","id":"t1","name":"Read","input":{"url":"https://x","content":[1],"type":"image"}}]},
{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"found"}]},{"type":"text","text":"And?","cache_control":{"type":"ephemeral"}}]}]}`
}

// codexBody is a request as Codex sends it.
const codexBody = `{"model":"m","instructions":"You are an agent.","store":false,"stream":true,"include":["reasoning.encrypted_content"],"prompt_cache_key":"k",
"tools":[{"type":"function","name":"shell","parameters":{}}],"max_output_tokens":500,"stop":["END"],
"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"Look."}]},
{"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"Hm."}]},
{"type":"function_call","call_id":"c1","name":"shell","arguments":"{\"a\":1}"},{"type":"function_call_output","call_id":"c1","output":"found"}]}`

// asMap reads a body.
func asMap(tb testing.TB, body []byte) map[string]json.RawMessage {
	tb.Helper()
	var m map[string]json.RawMessage
	if err := json.Unmarshal(body, &m); err != nil {
		tb.Fatalf("%v in %s", err, body)
	}
	return m
}

// The ids of a prompt make prefill's leg a text completion, into which nothing of the request goes but what names model, salt and place.
func TestAgents_PrefillComputesRenderedIDs(t *testing.T) {
	for api, body := range map[API]string{Messages: claudeBody("1"), Responses: codexBody} {
		leg := mustParse(t, api, body).PrefillBody(LegEdit{
			PromptIDs: []byte("[1,2]"), ReturnTokenIDs: true, CacheSalt: "salt", Members: []Member{{"kv_transfer_params", []byte(`{"a":1}`)}},
		})
		const want = `{"cache_salt":"salt","kv_transfer_params":{"a":1},"max_tokens":1,"model":"m","prompt":[1,2],"return_token_ids":true,"stream":false}`
		if got := sorted(t, leg.Bytes()); got != want {
			t.Errorf("API %d: got %s, want %s", api, got, want)
		}
	}
}

func TestAgents_NativeLegs(t *testing.T) {
	messages, responses := mustParse(t, Messages, claudeBody("1")), mustParse(t, Responses, codexBody)
	stored := mustParse(t, Responses, strings.Replace(codexBody, `"store":false`, `"store":true`, 1))
	prefill := LegEdit{ReturnTokenIDs: true}
	for want, leg := range map[string]rawjson.Pieces{ // members and their values, none for absent ones
		`max_tokens=1 stream=false stop_sequences= thinking={"type":"enabled","budget_tokens":2048} return_token_ids=`: messages.PrefillBody(prefill),
		`max_output_tokens=1 stream=false stop= store=false enable_response_messages=true max_tokens=`:                 responses.PrefillBody(prefill),
		`max_tokens=4096 stream=true stop_sequences=["END"] enable_response_messages= store= request_id=`:              messages.DecodeBody(LegEdit{ReturnTokenIDs: true}),
		`max_output_tokens=500 stream=true stop=["END"] store=false enable_response_messages=true request_id="resp_1"`: stored.DecodeBody(LegEdit{ReturnTokenIDs: true, RequestID: "1"}),
		`max_tokens=1 stream=false`:                 rescue(messages, nil),
		`store=false stream= max_output_tokens=500`: {responses.RenderBody()},
	} {
		got := asMap(t, leg.Bytes())
		for member := range strings.FieldsSeq(want) {
			name, value, _ := strings.Cut(member, "=")
			if string(got[name]) != value {
				t.Errorf("%s: %s is %s in %s", want, name, got[name], leg.Bytes())
			}
		}
	}
}

func TestAgents_RefusesWhatNeedsAStore(t *testing.T) {
	for member, value := range map[string]string{"previous_response_id": `"resp_1"`, "conversation": `{"id":"c"}`, "background": "true"} {
		body := `{"model":"m","input":"x","` + member + `":` + value + `}`
		_, err := ParseRequest(Responses, []byte(body))
		var bad *BadRequestError
		if !errors.As(err, &bad) || bad.Param != member || !strings.Contains(bad.Message, "send") {
			t.Errorf("%s: got %v", body, err)
		}
		if _, err := ParseRequest(Responses, []byte(strings.Replace(body, value, "null", 1))); err != nil {
			t.Errorf("%s of null: %v", member, err)
		}
		if _, err := ParseRequest(Messages, []byte(body)); err != nil {
			t.Errorf("%s on Messages: %v", member, err)
		}
	}
}

// The line in which Claude Code tells of itself is another in each request and in no prompt.
func TestAgents_ChainsPassOverTheAttribution(t *testing.T) {
	seed, long := maphash.MakeSeed(), strings.Repeat("You are patient. ", 200)
	chain := func(cch, text string) []uint64 {
		return mustParse(t, Messages, strings.Replace(claudeBody(cch), "You are an agent.", text, 1)).Prompt().Chain(seed)
	}
	one, same, other := chain("1", long), chain("2", long), chain("1", "X"+long)
	if len(one) < 3 || one[0] != same[0] || one[2] != same[2] || one[1] == other[1] {
		t.Errorf("chains %v, %v of another attribution, %v of another prompt", one, same, other)
	}
}

func TestAgents_PromptLength(t *testing.T) {
	for api, body := range map[API]string{Messages: claudeBody("1"), Responses: codexBody} {
		l := mustParse(t, api, body).Prompt().Length()
		if !l.Answered || l.Whole.Bytes < len("You are an agent.Look.") || l.Tail.Bytes < len("found") || l.Tail.Bytes > 40 {
			t.Errorf("API %d: %+v", api, l)
		}
	}
	if l := mustParse(t, Responses, `{"input":"1234","instructions":"12"}`).Prompt().Length(); l.Whole.Bytes != 6 || l.Tail.Bytes != 4 || l.Answered {
		t.Errorf("input of one text: %+v", l)
	}
}

// Whatever clients of the two APIs send, legs are valid JSON, hold what they must and nothing of a client's transfer params, and decode's
// has every other member as it was.
func FuzzAgentBodies(f *testing.F) {
	f.Add(false, []byte(claudeBody("1")))
	f.Add(true, []byte(codexBody))
	f.Add(true, []byte(`{"input":"x","store":true,"background":0,"kv_transfer_params":{"a":1}}`))
	f.Fuzz(func(t *testing.T, responses bool, body []byte) {
		api := Messages
		if responses {
			api = Responses
		}
		r, err := ParseRequest(api, body)
		if err != nil {
			return
		}
		l, _ := r.Prompt().Length(), r.Prompt().Plain()
		if l.Tail.Bytes > l.Whole.Bytes || l.Whole.Bytes < 0 {
			t.Errorf("%q: %+v", body, l)
		}
		_, _ = r.FeatureSet()
		_ = r.Prompt().Chain(maphash.MakeSeed())
		was := map[string]string{}
		for name, value := range r.Members() {
			was[string(name)] = string(value)
		}
		for _, leg := range [][]byte{
			r.PrefillBody(LegEdit{PromptIDs: []byte("[1]"), ReturnTokenIDs: true}).Bytes(), r.PrefillBody(LegEdit{ReturnTokenIDs: true}).Bytes(),
			rescue(r, nil).Bytes(), rescue(r, []byte("[1]")).Bytes(), r.RenderBody(),
		} {
			if m := asMap(t, leg); m["kv_transfer_params"] != nil || m["ec_transfer_params"] != nil {
				t.Errorf("%q gives %q", body, leg)
			}
		}
		decode := asMap(t, r.DecodeBody(LegEdit{Members: []Member{{Name: "kv_transfer_params", Value: []byte(`{"a":2}`)}}}).Bytes())
		if string(decode["kv_transfer_params"]) != `{"a":2}` {
			t.Errorf("%q: decode's params are %s", body, decode["kv_transfer_params"])
		}
		maps.DeleteFunc(decode, func(name string, _ json.RawMessage) bool {
			return name == "kv_transfer_params" || name == "store" && responses
		})
		delete(was, "store")
		for name, value := range was {
			if string(decode[name]) != value {
				t.Errorf("%q: %s is %q, want %q", body, name, decode[name], value)
			}
		}
	})
}
