package upstream

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"carryover/sse/rawjson"
	"carryover/upstream/body"
)

// readInSteps reads an answer as readAnswer does, with encoding/json: of equal names the last counts.
func readInSteps(l Leg, raw []byte) (answer PrefillAnswer, failed string, ok bool) {
	var all map[string]json.RawMessage
	if !rawjson.Valid(raw) || json.Unmarshal(raw, &all) != nil || all == nil {
		return PrefillAnswer{}, "", false
	}
	if fault := all["error"]; !rawjson.IsNull(fault) {
		return PrefillAnswer{}, ReadFault([]byte(`{"error":`+string(fault)+`}`)).Message + "!", true
	}
	answer.Body, answer.Cached = raw, -1
	answer.ID = AnswerID(all["id"])
	if params := all["kv_transfer_params"]; !rawjson.IsNull(params) {
		answer.Params = params
	}
	ids := all["prompt_token_ids"]
	if l.API == body.Text {
		var choices []json.RawMessage
		var first map[string]json.RawMessage
		if json.Unmarshal(all["choices"], &choices) == nil && len(choices) > 0 {
			_ = json.Unmarshal(choices[0], &first)
		}
		ids = first["prompt_token_ids"]
	}
	if len(ids) > 0 && ids[0] == '[' {
		answer.PromptIDs = ids
	}
	var usage, details map[string]json.RawMessage
	if json.Unmarshal(all["usage"], &usage) == nil {
		answer.PromptTokens, _ = rawjson.Integer(usage["prompt_tokens"])
		answer.PromptTokens = max(0, answer.PromptTokens)
	}
	if json.Unmarshal(usage["prompt_tokens_details"], &details) == nil {
		if n, ok := rawjson.Integer(details["cached_tokens"]); ok && n >= 0 {
			answer.Cached = n
		}
	}
	return answer, "", true
}

// checkAnswer compares both ways to read an answer.
func checkAnswer(t *testing.T, api body.API, body []byte) {
	t.Helper()
	leg := Leg{Instance: &Instance{Name: "p"}, API: api}
	want, failed, valid := readInSteps(leg, body)
	got, err := leg.readAnswer(body)
	var fault *LegError
	switch {
	case !valid:
		if !errors.As(err, &fault) || fault.Kind != Garbage {
			t.Fatalf("%q: got %+v, %v, want garbage", body, got, err)
		}
	case failed != "":
		if !errors.As(err, &fault) || fault.Kind != Status || fault.Status != http.StatusInternalServerError || fault.Message+"!" != failed {
			t.Fatalf("%q: got %+v, %v, want the fault %q", body, got, err, failed)
		}
	case err != nil:
		t.Fatalf("%q: %v", body, err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%q, API %d:\n got %+v\nwant %+v", body, api, got, want)
	}
}

// answersToRead are answers, each of which is read as both APIs'.
func answersToRead(tb testing.TB) []string {
	tb.Helper()
	return append([]string{
		`{}`, ` { } `, `[]`, `null`, `1`, `"x"`, ``, `{`, `{}x`, `{"id":1}`, `{"id":null,"id":"b"}`, `{"id":"\u0061\ud800"}`, `{"id":{"a":[1]}}`, `{"id":true}`,
		`{"kv_transfer_params":{"a":1},"kv_transfer_params":null}`, `{"kv_transfer_params":null,"kv_tran\u0073fer_params":{"a" : 1}}`, `{"kv_transfer_params":[]}`,
		`{"prompt_token_ids":[1,2],"prompt_token_ids":null}`, `{"prompt_token_ids":[1,2],"prompt_token_ids":[3]}`, `{"prompt_token_ids":[-1,1.5,"x",[2]]}`,
		`{"prompt_token_ids":[1,2}`, `{"prompt_token_ids":[01]}`, `{"prompt_token_ids":[1,]}`, `{"prompt_token_ids":"[1]"}`, `{"prompt_token_ids":[ 1 , 2 ]}`,
		`{"choices":[{"prompt_token_ids":[1]},{"prompt_token_ids":[2]}]}`, `{"choices":[{"prompt_token_ids":null,"prompt_token_ids":[1]}]}`,
		`{"choices":[{"prompt_token_ids":[1],"prompt_token_ids":[2]}]}`, `{"choices":[{"prompt_token_ids":[1]}],"choices":[]}`, `{"choices":{"0":{"prompt_token_ids":[1]}}}`,
		`{"choices":[[{"prompt_token_ids":[1]}]]}`, `{"choices":[null,{"prompt_token_ids":[1]}]}`, `{"choices":[{"prompt\u005ftoken_ids":[1]}]}`, `{"choices":[{"a":{"prompt_token_ids":[1]}}]}`,
		`{"choices":[{"prompt_token_ids":[1]}`, `{"choices":[{"prompt_token_ids":[1]},]}`, `{"choices":"x"}`,
		`{"usage":{"prompt_tokens":7},"usage":{}}`, `{"usage":{"prompt_tokens":-7}}`, `{"usage":{"prompt_tokens":"7"}}`, `{"usage":{"prompt_tokens":7.9}}`, `{"usage":[7]}`,
		`{"usage":{"prompt_tokens":1,"prompt_tokens":2}}`, `{"usage":{"prompt_tokens":1e30}}`,
		`{"error":null}`, `{"error":{"message":"m"}}`, `{"error":"m","error":null}`, `{"error":false}`, `{"error":{"message":"m"},"id":`,
		`{"a":` + strings.Repeat("[", 63) + strings.Repeat("]", 63) + `}`, `{"a":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`,
		`{"choices":` + strings.Repeat("[", 63) + strings.Repeat("]", 63) + `}`, `{"choices":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`,
		`{"choices":[{"a":` + strings.Repeat("[", 61) + strings.Repeat("]", 61) + `}]}`, `{"choices":[{"a":` + strings.Repeat("[", 62) + strings.Repeat("]", 62) + `}]}`,
		"{\"id\":\"\xff\"}",
	}, string(recorded(tb, "01-prefill-turn1.json").Response.JSON), string(recorded(tb, "11-completions-prefill.json").Response.JSON))
}

func TestReadAnswer_IsOnePassOverWhatWasReadInThree(t *testing.T) {
	for _, answer := range answersToRead(t) {
		for _, api := range []body.API{body.Chat, body.Text} {
			checkAnswer(t, api, []byte(answer))
		}
	}
}

func FuzzReadAnswer(f *testing.F) {
	f.Fuzz(func(t *testing.T, text bool, raw []byte) {
		api := body.Chat
		if text {
			api = body.Text
		}
		checkAnswer(t, api, raw)
	})
}

func TestAnswerID_IsNoneOnlyIfAbsent(t *testing.T) {
	for raw, want := range map[string]string{"": "", `null`: "", `"a\u002d1"`: "a-1", `7`: "7", `"\ud800"`: `"\ud800"`} {
		var id []byte
		if raw != "" {
			id = []byte(raw)
		}
		if got := AnswerID(id); got != want {
			t.Errorf("the id %s is %q, want %q", raw, got, want)
		}
	}
}

func TestAgents_PrefillAnswers(t *testing.T) {
	for _, row := range []struct {
		api  body.API
		body string
		want PrefillAnswer
	}{
		{body.Messages, `{"usage":{"input_tokens":3,"cache_read_input_tokens":4,"cache_creation_input_tokens":5},"kv_transfer_params":{"a":1}}`,
			PrefillAnswer{PromptTokens: 12, Cached: 4, Params: []byte(`{"a":1}`)}},
		{body.Messages, `{"usage":{"input_tokens":3}}`, PrefillAnswer{PromptTokens: 3, Cached: -1}},
		{body.Responses, `{"usage":{"input_tokens":3,"input_tokens_details":{"cached_tokens":2}},"input_messages":[{"type":"raw_message_tokens","tokens":[1,2,3]}]}`,
			PrefillAnswer{PromptTokens: 3, Cached: 2, PromptIDs: []byte("[1,2,3]")}},
		{body.Responses, `{"input_messages":[{"type":"raw_message_tokens","tokens":[1]},{"type":"raw_message_tokens","tokens":[2]}]}`, PrefillAnswer{Cached: -1}},
		{body.Responses, `{"input_messages":[{"type":"harmony","tokens":[1]}]}`, PrefillAnswer{Cached: -1}},
	} {
		got, err := Leg{Instance: &Instance{}, API: row.api}.readAnswer([]byte(row.body))
		if err != nil || got.PromptTokens != row.want.PromptTokens || got.Cached != row.want.Cached ||
			string(got.Params) != string(row.want.Params) || string(got.PromptIDs) != string(row.want.PromptIDs) {
			t.Errorf("API %d, %s: got %+v, %v, want %+v", row.api, row.body, got, err, row.want)
		}
	}
}
