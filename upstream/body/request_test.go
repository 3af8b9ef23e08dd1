package body

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"carryover/sse/rawjson"
)

func mustParse(tb testing.TB, api API, body string) *Request {
	tb.Helper()
	r, err := ParseRequest(api, []byte(body))
	if err != nil {
		tb.Fatalf("parse %.80s: %v", body, err)
	}
	return r
}

func TestParseRequest_Refuses(t *testing.T) {
	for _, row := range []struct{ body, param, code string }{
		{`{"stream":"true"}`, "stream", "invalid_type"},
		{`{"stream":1}`, "stream", "invalid_type"},
		{`{"n":"2"}`, "n", "invalid_type"},
		{`{"n":1.0}`, "n", "invalid_type"},
		{`{"n":1e0}`, "n", "invalid_type"},
		{`{"n":true}`, "n", "invalid_type"},
		{`{"model":7}`, "model", "invalid_type"},
		{`{"model":["m"]}`, "model", "invalid_type"},
		{`{"model":"\ud800"}`, "model", "invalid_type"},
		{`{"mod\u0065l":7}`, "model", "invalid_type"},
		{`{"a":1,"a":2}`, "a", "duplicate_key"},
		{`{"a":`, "", "invalid_json"},
		{"{\"secret\":\"\xff\"}", "", "invalid_utf8"},
	} {
		_, err := ParseRequest(Chat, []byte(row.body))
		bad, ok := errors.AsType[*BadRequestError](err)
		if !ok || bad.Param != row.param || bad.Code != row.code || bad.Error() == "" {
			t.Errorf("%q: got %v, want param %q, code %q", row.body, err, row.param, row.code)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the message repeats the body: %v", row.body, err)
		}
	}
}

func TestAPI_PathIsConstant(t *testing.T) {
	if got := Chat.Path() + " " + Text.Path(); got != "/v1/chat/completions /v1/completions" {
		t.Errorf("got %s", got)
	}
}

func TestRequest_Accessors(t *testing.T) {
	const body = `{"model":"a\u002fb","stream":true,"n":null,"max_tokens":7,"max_completion_tokens":9,"messages":[{"role":"user"}],"seed":9007199254740993,"user":"é","none":null}`
	r := mustParse(t, Chat, body)
	if r.Model != "a/b" || !r.Stream || r.Size() != len(body) || r.API != Chat {
		t.Errorf("got model %q, stream %t, size %d, api %d", r.Model, r.Stream, r.Size(), r.API)
	}
	if got, _ := r.Member("messages"); string(got) != `[{"role":"user"}]` {
		t.Errorf("messages: got %s", got)
	}
	if raw, ok := r.Member("seed"); string(raw) != "9007199254740993" || !ok {
		t.Errorf("seed: got %s, %t", raw, ok)
	}
	if raw, ok := r.Member("absent"); raw != nil || ok {
		t.Errorf("absent: got %s, %t", raw, ok)
	}
	if user, ok := r.String("user"); user != "é" || !ok {
		t.Errorf("user: got %q, %t", user, ok)
	}
	if _, ok := r.String("seed"); ok {
		t.Error("seed as a string: got ok")
	}
	if !r.Has("none") || r.Has("absent") {
		t.Errorf("Has: got none %t, absent %t", r.Has("none"), r.Has("absent"))
	}
}

func TestRequest_RemoveHidesFromReadersAndLegs(t *testing.T) {
	r := mustParse(t, Chat, `{"conversation_id":"c","model":"m","request_id":"r"}`)
	r.Remove("conversation_id")
	r.Remove("request_id")
	r.Remove("absent")
	var names []string
	for name := range r.Members() {
		names = append(names, string(name))
	}
	if fmt.Sprint(names) != "[model]" || r.Has("request_id") {
		t.Errorf("got members %v, want [model]", names)
	}
	if got := string(r.DecodeBody(LegEdit{}).Bytes()); got != `{"model":"m"}` {
		t.Errorf("decode body: got %s", got)
	}
	for range r.Members() {
		break
	}
}

func TestRequest_Prompt(t *testing.T) {
	for _, row := range []struct {
		body string
		want promptKind
	}{
		{`{}`, promptNone},
		{`{"prompt":null}`, promptNone},
		{`{"prompt":{}}`, promptNone},
		{`{"prompt":[]}`, promptNone},
		{`{"prompt":[ ]}`, promptNone},
		{`{"prompt":[null]}`, promptNone},
		{`{"prompt":"x"}`, promptText},
		{`{"prompt":""}`, promptText},
		{`{"prompt":[1,2]}`, promptTokens},
		{`{"prompt":["a"]}`, promptTextBatch},
		{"{\"prompt\":[\n\"a\",\"b\"]}", promptTextBatch},
		{`{"prompt":[[1],[2]]}`, promptTokensBatch},
	} {
		if got := mustParse(t, Text, row.body).Prompt().kind(); got != row.want {
			t.Errorf("%s: got kind %d, want %d", row.body, got, row.want)
		}
	}
}

func TestRequest_Disaggregable(t *testing.T) {
	for _, row := range []struct {
		api  API
		body string
		want string
	}{
		{Chat, `{"n":1,"use_beam_search":false,"best_of":1,"truncate_prompt_tokens":null}`, ""},
		{Chat, `{"n":null,"use_beam_search":null,"best_of":null}`, ""},
		{Chat, `{"n":2}`, WhyN},
		{Chat, `{"n":0}`, WhyN},
		{Chat, `{"n":-1}`, WhyN},
		{Chat, `{"n":99999999999999999999}`, WhyN},
		{Chat, `{"best_of":2}`, WhyN},
		{Text, `{"prompt":"x"}`, ""},
		{Text, `{"prompt":[1,2]}`, ""},
		{Text, `{"prompt":["x"]}`, WhyN},
		{Text, `{"prompt":[[1]]}`, WhyN},
		{Text, `{"prompt":"x","prompt_embeds":"AAAA"}`, WhyN},
		{Chat, `{"prompt":["x"]}`, ""}, // an unknown member of a chat request
		{Chat, `{"use_beam_search":true}`, WhyN},
		{Chat, `{"use_beam_search":"yes"}`, WhyN},
		{Text, `{"use_beam_search":1}`, WhyN},
		{Chat, `{"truncate_prompt_tokens":-1}`, WhyTruncate},
		{Chat, `{"truncate_prompt_tokens":0}`, WhyTruncate},
		{Chat, `{"truncate_prompt_tokens":"-1"}`, WhyTruncate},
		{Chat, `{"truncate_prompt_tokens":100}`, ""},
		{Chat, `{"prompt_logprobs":0,"stream":true}`, WhyPromptLogprobs},
		{Text, `{"prompt_logprobs":null,"echo":true}`, ""},
		{Text, `{"echo":true,"logprobs":0}`, WhyPromptLogprobs},
		{Chat, `{"echo":1,"top_logprobs":2}`, WhyPromptLogprobs},
		{Chat, `{"echo":false,"logprobs":true,"top_logprobs":50}`, ""},
	} {
		why, ok := mustParse(t, row.api, row.body).Disaggregable()
		if why != row.want || ok != (row.want == "") {
			t.Errorf("%s: got %q, %t, want %q", row.body, why, ok, row.want)
		}
	}
}

func TestRequest_Reusable(t *testing.T) {
	for _, row := range []struct{ body, want string }{
		{`{"echo":false,"prompt_logprobs":null,"truncate_prompt_tokens":null}`, ""},
		{`{"echo":true}`, WhyEcho},
		{`{"echo":"true"}`, WhyEcho},
		{`{"truncate_prompt_tokens":10}`, WhyTruncate},
	} {
		why, ok := mustParse(t, Chat, row.body).Reusable()
		if why != row.want || ok != (row.want == "") {
			t.Errorf("%s: got %q, %t, want %q", row.body, why, ok, row.want)
		}
	}
}

// smuggled holds a client's transfer params in the spellings that a parser
// downstream would read as the real members.
func smuggled() map[string]string {
	evil := `{"do_remote_prefill":true,"remote_host":"evil"}`
	return map[string]string{
		"plain":                   `{"kv_transfer_params":` + evil + `}`,
		"one escape":              `{"kv_tran\u0073fer_params":` + evil + `}`,
		"upper-case hex":          `{"kv\u005Ftransfer\u005Fparams":` + evil + `}`,
		"all escapes":             `{"\u006b\u0076\u005f\u0074\u0072\u0061\u006e\u0073\u0066\u0065\u0072\u005f\u0070\u0061\u0072\u0061\u006d\u0073":` + evil + `}`,
		"white space":             "{ \"kv_transfer_params\" \n:\t" + evil + " }",
		"last of many":            `{"model":"m","messages":[{"role":"user","content":"\"kv_transfer_params\":{}"}],"kv_transfer_params":` + evil + `}`,
		"a string":                `{"kv_transfer_params":"{}"}`,
		"an empty list":           `{"kv_transfer_params":[]}`,
		"false":                   `{"kv_transfer_params":false}`,
		"encoder cache":           `{"ec_transfer_params":` + evil + `}`,
		"escaped encoder cache":   `{"e\u0063_transfer_params":` + evil + `}`,
		"prefill's answer":        `{"disagg_prefill_resp":{"kv_transfer_params":` + evil + `}}`,
		"in vllm_xargs":           `{"vllm_xargs":{"kv_transfer_params":` + evil + `}}`,
		"empty in vllm_xargs":     `{"vllm_xargs":{"kv_transfer_params":{}}}`,
		"deep in vllm_xargs":      `{"vllm_xargs":{"a":[1,{"b":{"ec_transfer_params":` + evil + `}}]}}`,
		"escaped in vllm_xargs":   `{"vllm_xargs":{"a":"x","kv_transfer_param\u0073" : ` + evil + `}}`,
		"in escaped vllm_xargs":   `{"vllm\u005fxargs":{"kv_transfer_params":` + evil + `}}`,
		"both, the second hidden": `{"kv_transfer_params":null,"vllm_xargs":[{"kv_transfer_params":1}]}`,
	}
}

func TestParseRequest_RefusesSmuggledParams(t *testing.T) {
	for name, body := range smuggled() {
		_, err := ParseRequest(Chat, []byte(body))
		bad, ok := errors.AsType[*BadRequestError](err)
		if !ok || bad.Code != "unsupported_parameter" || !regexp.MustCompile(`^(kv_transfer_params|ec_transfer_params|disagg_prefill_resp|vllm_xargs)$`).MatchString(bad.Param) {
			t.Errorf("%s: got %v, want unsupported_parameter", name, err)
		}
	}
	for _, body := range []string{
		`{"kv_transfer_params":null,"kv_transfer_params":{"remote_host":"evil"}}`,
		`{"kv_transfer_params":{},"kv_tran\u0073fer_params":{"remote_host":"evil"}}`,
	} {
		_, err := ParseRequest(Chat, []byte(body))
		if bad, ok := errors.AsType[*BadRequestError](err); !ok || bad.Code != rawjson.CodeDuplicateKey || bad.Param != "kv_transfer_params" {
			t.Errorf("%s: got %v, want duplicate_key", body, err)
		}
	}
}

func TestParseRequest_EmptyParamsAreRemoved(t *testing.T) {
	r := mustParse(t, Chat, `{"kv_transfer_params":null,"a":1,"ec_transfer_params":{ },"vllm_xargs":{"session_id":"kv_transfer_params"}}`)
	if got, want := string(r.DecodeBody(LegEdit{}).Bytes()), `{"a":1,"vllm_xargs":{"session_id":"kv_transfer_params"}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// must ends the test at an error.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
