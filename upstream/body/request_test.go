package body

import (
	"errors"
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
	for body, want := range map[string]string{ // member and code
		`{"stream":"true"}`: "stream invalid_type", `{"stream":1}`: "stream invalid_type", `{"n":"2"}`: "n invalid_type", `{"n":1.0}`: "n invalid_type",
		`{"n":1e0}`: "n invalid_type", `{"n":true}`: "n invalid_type", `{"model":7}`: "model invalid_type", `{"model":["m"]}`: "model invalid_type",
		`{"model":"\ud800"}`: "model invalid_type", `{"mod\u0065l":7}`: "model invalid_type",
		`{"a":1,"a":2}`: "a duplicate_key", `{"a":`: " invalid_json", "{\"secret\":\"\xff\"}": " invalid_utf8",
	} {
		_, err := ParseRequest(Chat, []byte(body))
		bad, ok := errors.AsType[*BadRequestError](err)
		if !ok || bad.Param+" "+bad.Code != want || bad.Error() == "" || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: got %v, want %s, and nothing of the body", body, err, want)
		}
	}
}

func TestRequest_Disaggregable(t *testing.T) {
	for _, row := range []struct {
		api    API
		why    string
		bodies []string
	}{
		{Chat, "", []string{
			`{"n":1,"use_beam_search":false,"best_of":1,"truncate_prompt_tokens":null}`, `{"n":null,"use_beam_search":null,"best_of":null}`,
			`{"prompt":["x"]}`, // an unknown member of a chat request
			`{"truncate_prompt_tokens":100}`, `{"echo":false,"logprobs":true,"top_logprobs":50}`,
		}},
		{Chat, WhyN, []string{`{"n":2}`, `{"n":0}`, `{"n":-1}`, `{"n":99999999999999999999}`, `{"best_of":2}`, `{"use_beam_search":true}`, `{"use_beam_search":"yes"}`}},
		{Chat, WhyTruncate, []string{`{"truncate_prompt_tokens":-1}`, `{"truncate_prompt_tokens":0}`, `{"truncate_prompt_tokens":"-1"}`}},
		{Chat, WhyPromptLogprobs, []string{`{"prompt_logprobs":0,"stream":true}`, `{"echo":1,"top_logprobs":2}`}},
		{Text, "", []string{
			`{"prompt":"x"}`, `{"prompt":""}`, `{"prompt":[1,2]}`, `{"prompt_logprobs":null,"echo":true}`,
			`{}`, `{"prompt":null}`, `{"prompt":{}}`, `{"prompt":[]}`, `{"prompt":[ ]}`, `{"prompt":[null]}`,
		}},
		{Text, WhyN, []string{
			`{"prompt":["x"]}`, "{\"prompt\":[\n\"a\",\"b\"]}", `{"prompt":[[1]]}`, `{"prompt":[[1],[2]]}`, `{"prompt":"x","prompt_embeds":"AAAA"}`, `{"use_beam_search":1}`,
		}},
		{Text, WhyPromptLogprobs, []string{`{"echo":true,"logprobs":0}`}},
	} {
		for _, body := range row.bodies {
			if why, ok := mustParse(t, row.api, body).Disaggregable(); why != row.why || ok != (why == "") {
				t.Errorf("%s: got %q, %t, want %q", body, why, ok, row.why)
			}
		}
	}
}

func TestRequest_Reusable(t *testing.T) {
	for body, want := range map[string]string{
		`{"echo":false,"prompt_logprobs":null,"truncate_prompt_tokens":null}`: "", `{"echo":true}`: WhyEcho, `{"echo":"true"}`: WhyEcho, `{"truncate_prompt_tokens":10}`: WhyTruncate,
	} {
		if why, ok := mustParse(t, Chat, body).Reusable(); why != want || ok != (want == "") {
			t.Errorf("%s: got %q, %t, want %q", body, why, ok, want)
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
	if got, want := string(r.DecodeBody(DecodeEdit{}).Bytes()), `{"a":1,"vllm_xargs":{"session_id":"kv_transfer_params"}}`; got != want {
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
