package lmcache

import (
	"carryover/upstream/exchangetest"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"carryover/upstream/body"
)

// A converted stream has the chunks of a recorded one of a stock engine, member for member.
func TestStream_LooksLikeAStockEngines(t *testing.T) {
	for name, api := range map[string]body.API{"05-decode-turn2-stream-stock.json": body.Chat, "04-decode-stream.json": body.Text} {
		from := "vllm-0.32"
		if api == body.Text {
			from = folder
		}
		stock := events(t, exchangetest.Read(t, from, name).Response.Text)
		tr := transfer(t, api, `{"max_tokens":5,"stream":true,"stream_options":{"include_usage":true},"return_token_ids":true}`, 3)
		h := handOver(t, newBench(nil).plan(t, tr), firstAnswer("x", 3))
		head := events(t, string(h.Head))
		decode := []string{
			`{"id":"cmpl-d","object":"text_completion","created":6,"model":"m","choices":[{"index":0,"text":"y","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":[1,2,3,77],"token_ids":[8]}]}`,
			`{"id":"cmpl-d","object":"text_completion","created":6,"model":"m","choices":[{"index":0,"text":"z","logprobs":null,"finish_reason":"length","stop_reason":null,"prompt_token_ids":null,"token_ids":[9]}]}`,
			`{"id":"cmpl-d","object":"text_completion","created":6,"model":"m","choices":[],"usage":{"prompt_tokens":4,"total_tokens":6,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":3}},"system_fingerprint":"fp"}`,
		}
		var got []string
		for _, data := range decode {
			got = append(got, string(h.Rewrite.Event([]byte(data))))
		}
		usage := got[2]
		if api == body.Chat {
			usage = strings.Replace(usage, `"cached_tokens":3`, `"cached_tokens":3,"created_cache_tokens":0`, 1)
		}
		n := len(stock)
		for what, pair := range map[string][2]string{
			"the first event": {head[0], stock[0]}, "the first token": {head[len(head)-1], stock[len(head)-1]},
			"text": {got[0], stock[n-4]}, "the finish": {got[1], stock[n-3]}, "the usage": {usage, stock[n-2]},
		} {
			if g, w := exchangetest.Shape(t, []byte(pair[0])), exchangetest.Shape(t, []byte(pair[1])); !reflect.DeepEqual(g, w) {
				t.Errorf("%s, %s: got %s, want %s", api.Path(), what, g, w)
			}
		}
	}
}

func TestWhole_LooksLikeAStockEngines(t *testing.T) {
	for name, api := range map[string]body.API{"09-decode-stop-string-null.json": body.Chat, "12-completions-decode-token-prompt.json": body.Text} {
		ids := `,"return_token_ids":true`
		if api == body.Chat {
			ids = ""
		}
		tr := transfer(t, api, `{"max_tokens":5`+ids+`}`, 3)
		var tokens []string // decode was not asked for them
		if api == body.Chat {
			tokens = []string{`"token_ids":[77]`, `"token_ids":null`}
		}
		h := handOver(t, newBench(nil).plan(t, tr), firstAnswer("x", 3))
		decode := firstAnswer("yz", 4, append(tokens, `"kv_transfer_params":null,`, ``, `"length"`, `"stop"`, `"stop_reason":null`, `"stop_reason":"e"`)...)
		got, err := h.Rewrite.Body([]byte(decode))
		must(t, err)
		answer := exchangetest.Object(t, got)
		choice := answer["choices"].([]any)[0].(map[string]any)
		text, _ := choice["text"].(string)
		if api == body.Chat {
			text, _ = choice["message"].(map[string]any)["content"].(string)
		}
		usage := answer["usage"].(map[string]any)
		if text != "xyz" || choice["finish_reason"] != "stop" || choice["stop_reason"] != "e" || usage["prompt_tokens"] != json.Number("3") ||
			usage["completion_tokens"] != json.Number("2") || usage["total_tokens"] != json.Number("5") || fmt.Sprint(choice["token_ids"]) != map[bool]string{true: "<nil>", false: "[77 77]"}[api == body.Chat] {
			t.Errorf("%s: got %s", api.Path(), got)
		}
		stock := exchangetest.Shape(t, exchangetest.Read(t, "vllm-0.32", name).Response.JSON).(map[string]any)
		delete(stock, "kv_transfer_params") // the runner cuts it
		if g := exchangetest.Shape(t, got); !reflect.DeepEqual(g, stock) {
			t.Errorf("%s: got %v, want %v", api.Path(), g, stock)
		}
	}
}
