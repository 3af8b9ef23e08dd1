package vllmsim

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"carryover/upstream/vllmsim/wire"
)

// streamed sends a streaming request and returns its chunks without [DONE].
func streamed(t *testing.T, i *Instance, path string, body object) (chunks []object) {
	t.Helper()
	got := post(t, i, path, with(body, object{"model": "sim", "stream": true}))
	if got.status != http.StatusOK {
		t.Fatalf("answered %d: %s", got.status, got.raw)
	}
	events := got.events(t)
	if events[len(events)-1] != "[DONE]" {
		t.Fatalf("the last event is %s, want [DONE]", events[len(events)-1])
	}
	for _, event := range events[:len(events)-1] {
		var c object
		if err := json.Unmarshal([]byte(event), &c); err != nil {
			t.Fatalf("event %s: %v", event, err)
		}
		chunks = append(chunks, c)
	}
	return chunks
}

func choiceOf(chunk object) object {
	choices := chunk["choices"].([]any)
	if len(choices) == 0 {
		return object{}
	}
	return choices[0].(object)
}

func TestStream_WhereTheParamsAre(t *testing.T) {
	for _, c := range []struct {
		place string
		usage bool
		want  string
	}{
		{ParamsNever, true, "none"}, {ParamsNever, false, "none"},
		{ParamsFinish, true, "finish"}, {ParamsFinish, false, "finish"},
		{ParamsUsage, true, "usage"}, {ParamsUsage, false, "finish"},
		{ParamsSeparate, true, "separate"}, {ParamsSeparate, false, "separate"},
	} {
		for _, path := range []string{wire.PathChat, wire.PathCompletions} {
			i := startInstance(t, func(cfg *Config) { cfg.Params, cfg.OutputTokenIDs = c.place, true })
			body := object{"messages": []any{user("hi")}, "prompt": "hi", "max_tokens": 3, "kv_transfer_params": object{"x": 1}}
			if c.usage {
				body["stream_options"] = object{"include_usage": true}
			}
			var found []string
			for _, chunk := range streamed(t, i, path, body) {
				params, ok := chunk["kv_transfer_params"].(object)
				if !ok {
					continue
				}
				switch {
				case choiceOf(chunk)["finish_reason"] != nil:
					found = append(found, "finish")
				case chunk["usage"] != nil:
					found = append(found, "usage")
				default:
					found = append(found, "separate")
				}
				if n := len(ids(params["output_token_ids"])); n != 3 {
					t.Errorf("%s %s: %d output_token_ids, want 3", path, c.place, n)
				}
			}
			if got := strings.Join(append(found, "none")[:max(1, len(found))], "+"); got != c.want {
				t.Errorf("%s %s, usage %v: params on %s, want %s", path, c.place, c.usage, got, c.want)
			}
		}
	}
}
