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

// reading is what a client reads of a stream.
type reading struct {
	text, finish, stopReason string
	ids, prompt              []uint32
	usage                    [3]int // prompt, total, completion
	done                     bool
}

// read reads a stream as clients do: parts of one answer, whose id, model and time never change.
func read(t *testing.T, api body.API, stream string) (r reading) {
	t.Helper()
	var same [4]string
	for i, data := range events(t, stream) {
		if r.done {
			t.Errorf("%s comes behind the end", data)
		}
		if data == "[DONE]" {
			r.done = true
			continue
		}
		var chunk struct {
			ID, Object, Model string
			Created           int
			Prompt            []uint32 `json:"prompt_token_ids"`
			Choices           []struct {
				Text   *string
				Delta  *struct{ Role, Content string }
				Finish string          `json:"finish_reason"`
				Stop   json.RawMessage `json:"stop_reason"`
				IDs    []uint32        `json:"token_ids"`
				Prompt []uint32        `json:"prompt_token_ids"`
			}
			Usage *struct {
				P int `json:"prompt_tokens"`
				T int `json:"total_tokens"`
				C int `json:"completion_tokens"`
			}
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		head := [4]string{chunk.ID, chunk.Object, chunk.Model, fmt.Sprint(chunk.Created)}
		if i == 0 {
			same, r.prompt = head, chunk.Prompt
		} else if head != same || chunk.Prompt != nil {
			t.Errorf("%s is of another answer than %v", data, same)
		}
		if chunk.Usage != nil {
			r.usage = [3]int{chunk.Usage.P, chunk.Usage.T, chunk.Usage.C}
		}
		for _, c := range chunk.Choices {
			if (api == body.Chat) != (c.Delta != nil && c.Text == nil) || r.finish != "" {
				t.Errorf("%s is no chunk of this API, or comes behind the finish", data)
				continue
			}
			if c.Prompt != nil {
				if r.prompt != nil {
					t.Errorf("%s has the prompt once more", data)
				}
				r.prompt = c.Prompt
			}
			if c.Delta != nil {
				r.text += c.Delta.Content
				if first := i == 0; first != (c.Delta.Role == "assistant") {
					t.Errorf("event %d: role %q", i, c.Delta.Role)
				}
			} else {
				r.text += *c.Text
			}
			r.ids = append(r.ids, c.IDs...)
			if r.finish = c.Finish; string(c.Stop) != "null" {
				r.stopReason = string(c.Stop)
			}
		}
	}
	return r
}

// shapeOf is JSON with the names of members in their order and the kinds of values, without prompt_tokens_details, which
// engines have or not.
func shapeOf(t *testing.T, raw string) string {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(raw))
	var walk func() string
	walk = func() string {
		token, err := d.Token()
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		switch token {
		case json.Delim('{'):
			var names []string
			for d.More() {
				name, _ := d.Token()
				names = append(names, fmt.Sprint(name, ":", walk()))
			}
			_, _ = d.Token()
			return "{" + strings.Join(names, " ") + "}"
		case json.Delim('['):
			var all []string
			for d.More() {
				if s := walk(); len(all) == 0 || all[len(all)-1] != s {
					all = append(all, s)
				}
			}
			_, _ = d.Token()
			return "[" + strings.Join(all, " ") + "]"
		}
		return fmt.Sprintf("%T", token)
	}
	return walk()
}

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
		n := len(stock)
		compare := map[string][2]string{
			"the finish": {got[1], stock[n-3]}, "the usage": {strings.Replace(got[2], `"cached_tokens":3`, `"cached_tokens":3,"created_cache_tokens":0`, 1), stock[n-2]},
			"the first event": {head[0], stock[0]}, "text": {got[0], stock[n-4]},
		}
		if api == body.Text {
			compare["the usage"] = [2]string{got[2], stock[n-2]}
		}
		for what, pair := range compare {
			if g, w := shapeOf(t, pair[0]), shapeOf(t, pair[1]); g != w {
				t.Errorf("%s, %s: got %s, want %s", api.Path(), what, g, w)
			}
		}
		if g, w := shapeOf(t, head[len(head)-1]), shapeOf(t, stock[len(head)-1]); g != w {
			t.Errorf("%s, the first token: got %s, want %s", api.Path(), g, w)
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
		stock := exchangetest.Object(t, exchangetest.Read(t, "vllm-0.32", name).Response.JSON)
		delete(stock, "kv_transfer_params") // the runner cuts it
		answer := exchangetest.Object(t, got)
		if g, w := kinds(answer), kinds(stock); !reflect.DeepEqual(g, w) {
			t.Errorf("%s: got %v, want %v", api.Path(), g, w)
		}
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
	}
}

// kinds are the names of a whole answer's members, those of its choice and message, and those of its usage.
func kinds(answer map[string]any) (all []map[string]bool) {
	names := func(value any) map[string]bool {
		set := map[string]bool{}
		if o, ok := value.(map[string]any); ok {
			for name := range o {
				set[name] = true
			}
		}
		return set
	}
	choice := answer["choices"].([]any)[0].(map[string]any)
	return []map[string]bool{names(answer), names(choice), names(choice["message"]), names(answer["usage"]), names(answer["usage"].(map[string]any)["prompt_tokens_details"])}
}
