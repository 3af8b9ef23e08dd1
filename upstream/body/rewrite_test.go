package body

import (
	"carryover/upstream/exchangetest"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"carryover/sse/rawjson"
)

func TestRequest_Bodies(t *testing.T) {
	const ours = `{"do_remote_decode":true}`
	for _, row := range []struct {
		name, body, prefill, rescue, decode string
		api                                 API
	}{
		{
			name:    "empty",
			body:    ` { } `,
			prefill: ` {"stream":false,"max_tokens":1,"kv_transfer_params":` + ours + ` } `,
			decode:  ` {"kv_transfer_params":` + ours + ` } `,
		},
		{
			name:    "everything that changes",
			body:    `{"stream":true,"stream_options":{"include_usage":true},"max_tokens":100,"max_completion_tokens":50,"min_tokens":5,"min_completion_tokens":5,"n":1,"logprobs":true,"top_logprobs":3,"logprob_token_ids":[1],"echo":false,"prompt_logprobs":null,"return_prompt_text":true,"return_token_ids":true,"model":"m"}`,
			prefill: `{"stream":false,"max_tokens":1,"max_completion_tokens":1,"n":1,"logprobs":true,"top_logprobs":3,"logprob_token_ids":[1],"prompt_logprobs":null,"model":"m","kv_transfer_params":` + ours + `}`,
			rescue:  `{"stream":false,"max_tokens":1,"max_completion_tokens":1,"n":1,"prompt_logprobs":null,"model":"m","kv_transfer_params":` + ours + `}`,
			decode:  `{"stream":true,"stream_options":{"include_usage":true},"max_tokens":100,"max_completion_tokens":50,"min_tokens":5,"min_completion_tokens":5,"n":1,"logprobs":true,"top_logprobs":3,"logprob_token_ids":[1],"echo":false,"prompt_logprobs":null,"return_prompt_text":true,"return_token_ids":true,"model":"m","kv_transfer_params":` + ours + `}`,
		},
		{
			name:    "nothing else changes",
			body:    "{ \"messages\" : [{\"role\":\"user\",\"content\":\"\\u00e9<\\/\"}],\n\t\"seed\":9007199254740993 , \"x\":1.50e+400,\"\\u0079\":{\"b\":1,\"b\":2}, \"n\":null,\"max_completion_tokens\": null }\n",
			prefill: "{ \"messages\" : [{\"role\":\"user\",\"content\":\"\\u00e9<\\/\"}],\n\t\"seed\":9007199254740993 , \"x\":1.50e+400,\"\\u0079\":{\"b\":1,\"b\":2}, \"n\":null,\"max_completion_tokens\": null,\"stream\":false,\"max_tokens\":1,\"kv_transfer_params\":" + ours + " }\n",
			decode:  "{ \"messages\" : [{\"role\":\"user\",\"content\":\"\\u00e9<\\/\"}],\n\t\"seed\":9007199254740993 , \"x\":1.50e+400,\"\\u0079\":{\"b\":1,\"b\":2}, \"n\":null,\"max_completion_tokens\": null,\"kv_transfer_params\":" + ours + " }\n",
		},
		{
			name:    "escaped names, white space around what goes",
			body:    `{ "str\u0065am" : true , "min_token\u0073":1, "a" : 1 , "stream_options" : {} }`,
			prefill: `{ "str\u0065am" : false, "a" : 1,"max_tokens":1,"kv_transfer_params":` + ours + ` }`,
			decode:  `{ "str\u0065am" : true , "min_token\u0073":1, "a" : 1 , "stream_options" : {},"kv_transfer_params":` + ours + ` }`,
		},
		{
			name:    "text, what prefill refuses as decode does",
			api:     Text,
			body:    `{"echo":true,"logprobs":99,"stream_options":{}}`,
			prefill: `{"logprobs":99,"stream_options":{},"stream":false,"max_tokens":1,"kv_transfer_params":` + ours + `}`,
			rescue:  `{"stream_options":{},"stream":false,"max_tokens":1,"kv_transfer_params":` + ours + `}`,
			decode:  `{"echo":true,"logprobs":99,"stream_options":{},"kv_transfer_params":` + ours + `}`,
		},
	} {
		r := mustParse(t, row.api, row.body)
		for _, leg := range []struct{ name, got, want string }{
			{"prefill", string(r.PrefillBody(PrefillEdit{Members: transferParams([]byte(ours))}).Bytes()), row.prefill},
			{"decode", string(r.DecodeBody(DecodeEdit{Members: transferParams([]byte(ours))}).Bytes()), row.decode},
			{"rescue without ids", string(rescue(r, nil, transferParams([]byte(ours))...).Bytes()), cmp.Or(row.rescue, row.prefill)},
			{"decode alone", string(r.DecodeBody(DecodeEdit{}).Bytes()), row.body},
		} {
			if leg.got != leg.want {
				t.Errorf("%s, %s:\n got %s\nwant %s", row.name, leg.name, leg.got, leg.want)
			}
		}
	}
}

func TestRequest_BodiesWithSaltAndIDs(t *testing.T) {
	r := mustParse(t, Chat, `{"cache_salt":"theirs","return_token_ids":false,"n":3}`)
	got := string(r.PrefillBody(PrefillEdit{ReturnTokenIDs: true, CacheSalt: `o"urs`}).Bytes())
	if want := `{"cache_salt":"o\"urs","return_token_ids":true,"n":1,"stream":false,"max_tokens":1}`; got != want {
		t.Errorf("prefill: got %s, want %s", got, want)
	}
	got = string(r.DecodeBody(DecodeEdit{CacheSalt: `o"urs`}).Bytes())
	if want := `{"cache_salt":"o\"urs","return_token_ids":false,"n":3}`; got != want {
		t.Errorf("decode: got %s, want %s", got, want)
	}
}

func TestRequest_LegsWithPromptIDs(t *testing.T) {
	ids := []byte("[56,272]")
	r := mustParse(t, Text, `{ "prompt" : "The lease", "return_token_ids":false}`)
	for _, leg := range []struct{ name, got, want string }{
		{"prefill", string(r.PrefillBody(PrefillEdit{PromptIDs: ids, ReturnTokenIDs: true}).Bytes()), `{ "prompt" : [56,272], "return_token_ids":true,"stream":false,"max_tokens":1}`},
		{"decode", string(r.DecodeBody(DecodeEdit{PromptIDs: ids, ReturnTokenIDs: true}).Bytes()), `{ "prompt" : [56,272], "return_token_ids":true}`},
		{"decode for the client", string(r.DecodeBody(DecodeEdit{PromptIDs: ids}).Bytes()), `{ "prompt" : [56,272], "return_token_ids":false}`},
		{"decode as it came", string(r.DecodeBody(DecodeEdit{}).Bytes()), `{ "prompt" : "The lease", "return_token_ids":false}`},
	} {
		if leg.got != leg.want {
			t.Errorf("%s:\n got %s\nwant %s", leg.name, leg.got, leg.want)
		}
	}
	// A chat leg carries its ids in kv_transfer_params.
	r = mustParse(t, Chat, `{"messages":[]}`)
	if got, want := string(r.DecodeBody(DecodeEdit{PromptIDs: ids, ReturnTokenIDs: true}).Bytes()), `{"messages":[],"return_token_ids":true}`; got != want {
		t.Errorf("chat: got %s, want %s", got, want)
	}
}

// rescue is the body of a rescue.
func rescue(r *Request, ids []byte, members ...Member) rawjson.Pieces {
	_, body := r.RescueBody(PrefillEdit{PromptIDs: ids, Members: members})
	return body
}

// A rescue has the prompt's ids and nothing else of the client's that an engine could refuse.
func TestRequest_RescueBody(t *testing.T) {
	const chat = `{"model":"m","messages":[],"logprobs":true,"top_logprobs":9999,"n":3,"stream":true,"stop":["x"],"cache_salt":"theirs","response_format":{},"max_tokens":9}`
	params := transferParams([]byte(`{"ours":1}`))
	for _, row := range []struct {
		name string
		edit PrefillEdit
		api  API
		want string
	}{
		{"ids", PrefillEdit{PromptIDs: []byte("[1,2]"), CacheSalt: "own", Members: params}, Text,
			`{"max_tokens":1,"stream":false,"model":"m","prompt":[1,2],"kv_transfer_params":{"ours":1},"cache_salt":"own"}`},
		{"a prompt of the connector's", PrefillEdit{CacheSalt: "own", Members: append(params, Member{Name: "prompt", Value: []byte("[3]")})}, Text,
			`{"max_tokens":1,"stream":false,"model":"m","kv_transfer_params":{"ours":1},"prompt":[3],"cache_salt":"own"}`},
		{"no ids", PrefillEdit{CacheSalt: "own", Members: params}, Chat,
			`{"model":"m","messages":[],"n":1,"stream":false,"stop":["x"],"cache_salt":"own","response_format":{},"max_tokens":1,"kv_transfer_params":{"ours":1}}`},
	} {
		api, got := mustParse(t, Chat, chat).RescueBody(row.edit)
		if api != row.api || string(got.Bytes()) != row.want {
			t.Errorf("%s: got %s %s, want %s %s", row.name, api.Path(), got.Bytes(), row.api.Path(), row.want)
		}
	}
}

// noTicket is what a prefill leg without a ticket carries to NIXL.
var noTicket = []byte(`{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}`)

func TestRewrite_OneAllocation(t *testing.T) {
	count := func(size int) float64 {
		body := []byte(chatBody(size))
		r := mustParse(t, Chat, string(body))
		return testing.AllocsPerRun(20, func() {
			if _, err := ParseRequest(Chat, body); err != nil {
				t.Error(err)
			}
			r.PrefillBody(PrefillEdit{Members: transferParams(noTicket)})
		})
	}
	if few, many := count(2<<10), count(256<<10); few != many || many > 16 {
		t.Errorf("got %.0f allocations at 2 KB and %.0f at 256 KB, want the same small number", few, many)
	}
}

// chatBody returns a chat request of about size bytes, with the escapes and
// non-ASCII text of real conversations.
func chatBody(size int) string {
	const line = `The lease of a block ends\nafter \"30 s\", caf\u00e9 or café; func f(x []byte) { return x[1:] }\n`
	var b strings.Builder
	b.WriteString(`{"model":"tiny","stream":true,"stream_options":{"include_usage":true},"temperature":0.7,"max_tokens":512,"messages":[{"role":"system","content":"short"}`)
	for b.Len() < size {
		b.WriteString(`,{"role":"user","content":"`)
		for range min(40, 1+(size-b.Len())/len(line)) {
			b.WriteString(line)
		}
		b.WriteString(`"}`)
	}
	b.WriteString(`],"conversation_id":"c-1","seed":9007199254740993}`)
	return b.String()
}

// transferParams is what a connector puts into a leg.
func transferParams(params []byte) []Member { return []Member{{"kv_transfer_params", params}} }

func TestRequest_TokenizeBody(t *testing.T) {
	for _, row := range []struct {
		api        API
		body, want string
	}{
		{ // what /tokenize takes
			Chat, `{"model":"m","messages":[{"role":"user","content":"\u00e9"}],"tools":[ {} ],"chat_template":"t","chat_template_kwargs":{"a" : 1},"add_generation_prompt":false,"continue_final_message":true,"add_special_tokens":true,"mm_processor_kwargs":{"b":1},"media_io_kwargs":{},"temperature":1.50,"tool_choice":"none","response_format":{"type":"text"},"stream":true,"user":"u","truncation_side":"left","structured_outputs":{}}`,
			`{"model":"m","messages":[{"role":"user","content":"\u00e9"}],"tools":[ {} ],"chat_template":"t","add_generation_prompt":false,"continue_final_message":true,"add_special_tokens":true,"mm_processor_kwargs":{"b":1},"media_io_kwargs":{},"chat_template_kwargs":{"a" : 1}}`,
		},
		{ // null goes
			Chat, `{"messages":[],"tools":null,"chat_template_kwargs":null,"add_generation_prompt":null,"documents":null,"reasoning_effort":null}`,
			`{"messages":[]}`,
		},
		{ // documents and effort become template arguments
			Chat, `{"documents":[{"title":"t"}],"messages":[],"reasoning_effort":"low"}`,
			`{"messages":[],"chat_template_kwargs":{"documents":[{"title":"t"}],"reasoning_effort":"low","enable_thinking":true}}`,
		},
		{ // and win over those
			Chat, `{"chat_template_kwargs":{"documents":1,"enable_thinking":null,"reasoning_effort":"max","z":2},"documents":[],"messages":[],"reasoning_effort":"low"}`,
			`{"messages":[],"chat_template_kwargs":{"documents":[],"enable_thinking":null,"reasoning_effort":"low","z":2}}`,
		},
		{ // effort among the arguments stays
			Chat, `{"chat_template_kwargs":{"reasoning_effort":"none"},"messages":[]}`,
			`{"messages":[],"chat_template_kwargs":{"reasoning_effort":"none"}}`,
		},
		{ // reasoning under its new name
			Chat, `{"messages":[ {"role":"user","content":"a"} , {"role":"assistant","reasoning_content":"r\u00e9","content":"b"},{"reasoning":"kept","role":"assistant","reasoning_content":"dropped","content":"c"},{"role":"assistant","reasoning":null,"reasoning\u005fcontent":"d"},{"role":"assistant","reasoning_content":null,"content":"e"} ]}`,
			`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b","reasoning":"r\u00e9"},{"reasoning":"kept","role":"assistant","content":"c"},{"role":"assistant","reasoning":"d"},{"role":"assistant","content":"e"}]}`,
		},
		{ // text
			Text, `{"model":"m","prompt":"a\nb","add_special_tokens":false,"max_tokens":4,"chat_template_kwargs":{"a":1}}`,
			`{"model":"m","prompt":"a\nb","add_special_tokens":false}`,
		},
	} {
		body, why, ok := mustParse(t, row.api, row.body).TokenizeBody(nil)
		if string(body) != row.want || !ok {
			t.Errorf("%s:\n got %s %s\nwant %s", row.body, body, why, row.want)
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
	want := exchangetest.Read(t, "vllm-0.32", "03-tokenize-turn2.json").Request.Body
	var chat map[string]any
	must(t, json.Unmarshal(exchangetest.Read(t, "vllm-0.32", "05-decode-turn2-stream-stock.json").Request.Body, &chat))
	delete(chat, "kv_transfer_params")
	chat["add_generation_prompt"] = true
	raw, err := json.Marshal(chat)
	must(t, err)
	body, why, ok := mustParse(t, Chat, string(raw)).TokenizeBody(nil)
	if !ok {
		t.Fatalf("not comparable: %s", why)
	}
	if sorted(t, body) != sorted(t, want) {
		t.Errorf("got  %s\nwant %s", body, want)
	}
}

func TestRequest_PromptIDs(t *testing.T) {
	for body, want := range map[string]string{
		`{"prompt":[56, 272]}`: "[56 272] true", `{"prompt":[]}`: "[] false", `{"prompt":[1,"a"]}`: "[] false", `{"prompt":[[1]]}`: "[] false", `{"prompt":"x"}`: "[] false",
	} {
		if got := fmt.Sprint(mustParse(t, Text, body).Prompt().IDs()); got != want {
			t.Errorf("%s: got %s, want %s", body, got, want)
		}
	}
	if ids, ok := mustParse(t, Chat, `{"prompt":[1]}`).Prompt().IDs(); ok {
		t.Errorf("of a chat: got %v", ids)
	}
}
