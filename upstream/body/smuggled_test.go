package body

import (
	"errors"
	"regexp"
	"testing"

	"carryover/sse/rawjson"
)

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
