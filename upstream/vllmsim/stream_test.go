package vllmsim

import (
	"encoding/json"
	"net/http"
	"slices"
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

// joined concatenates a member of the deltas.
func joined(chunks []object, member string) string {
	var b strings.Builder
	for _, c := range chunks {
		choice := choiceOf(c)
		if text, ok := choice[member].(string); ok {
			b.WriteString(text)
		}
		if delta, ok := choice["delta"].(object); ok {
			if text, ok := delta[member].(string); ok {
				b.WriteString(text)
			}
		}
	}
	return b.String()
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

func TestStream_SaysWhatNonStreamSays(t *testing.T) {
	for _, empty := range []bool{false, true} {
		for _, stop := range []any{nil, "e ", []string{"fox", "gard", "the"}} {
			for _, path := range []string{wire.PathChat, wire.PathCompletions} {
				i := startInstance(t, func(c *Config) { c.EmptyDeltas = empty })
				for _, text := range []string{"Tell me.", "SAY naïve 日本 🎉 text that goes on", "Tell us."} {
					body := object{"model": "sim", "messages": []any{user(text)}, "prompt": text, "stop": stop, "max_tokens": 40, "return_token_ids": true}
					want := post(t, i, path, body)
					chunks := streamed(t, i, path, body)
					if got := joined(chunks, "content") + joined(chunks, "text"); got != want.text() {
						t.Errorf("%s %q empty %v stop %v: stream %q, non-stream %q", path, text, empty, stop, got, want.text())
					}
					last := choiceOf(chunks[len(chunks)-1])
					if last["finish_reason"] != want.choice()["finish_reason"] || last["stop_reason"] != want.choice()["stop_reason"] {
						t.Errorf("%s %q stop %v: stream ends with %v, non-stream %v", path, text, stop, last, want.choice())
					}
					var streamedIDs []int32
					for _, chunk := range chunks {
						streamedIDs = append(streamedIDs, ids(choiceOf(chunk)["token_ids"])...)
					}
					if !slices.Equal(streamedIDs, ids(want.choice()["token_ids"])) {
						t.Errorf("%s %q: the stream has other token ids than the whole answer", path, text)
					}
				}
			}
		}
	}
}

func TestStream_StopStringsAreCutOut(t *testing.T) {
	i := startInstance(t, nil)
	body := object{"messages": []any{user("Tell me.")}, "max_tokens": 40}
	whole := joined(streamed(t, i, wire.PathChat, body), "content")
	for _, stop := range []string{whole[9:13], whole[20:31], whole[40:42], whole[3:4]} {
		want, _, _ := strings.Cut(whole, stop)
		for _, include := range []bool{false, true} {
			if include {
				want += stop
			}
			got := joined(streamed(t, i, wire.PathChat, with(body, object{"stop": stop, "include_stop_str_in_output": include})), "content")
			if got != want {
				t.Errorf("stop %q, included %v: %q, want %q", stop, include, got, want)
			}
		}
	}
}

func TestStream_EmptyDeltasExistOnlyForTokenIDs(t *testing.T) {
	i := startInstance(t, func(c *Config) { c.EmptyDeltas = true })
	body := object{"messages": []any{user("Tell me.")}, "max_tokens": 20}
	plain := streamed(t, i, wire.PathChat, body)
	asked := streamed(t, i, wire.PathChat, with(body, object{"return_token_ids": true}))
	var kept, dropped int
	for _, chunk := range asked {
		choice := choiceOf(chunk)
		if len(choice["delta"].(object)) == 0 && choice["finish_reason"] == nil {
			dropped++
		} else {
			kept++
		}
	}
	if dropped == 0 || kept != len(plain) {
		t.Errorf("with ids: %d empty and %d other events, without: %d; want some empty and as many others", dropped, kept, len(plain))
	}
	if joined(plain, "content") != joined(asked, "content") {
		t.Error("the texts differ")
	}
}

func TestStream_ToolCall(t *testing.T) {
	i := startInstance(t, nil)
	body := object{"messages": []any{user(`CALL find {"q": "a } b", "n": [1, 2]}`)}, "tools": []any{object{"type": "function", "function": object{"name": "find"}}}}
	chunks := streamed(t, i, wire.PathChat, body)
	var name, arguments, id string
	for _, chunk := range chunks {
		delta := choiceOf(chunk)["delta"].(object)
		calls, ok := delta["tool_calls"].([]any)
		if !ok {
			continue
		}
		call := calls[0].(object)
		function := call["function"].(object)
		if call["id"] != nil {
			id = call["id"].(string)
			name = function["name"].(string)
			if function["arguments"] != nil {
				t.Errorf("the first delta of a call has arguments: %v", call)
			}
			continue
		}
		if id == "" || call["index"] != 0.0 {
			t.Errorf("arguments before the name, or without index: %v", call)
		}
		arguments += function["arguments"].(string)
	}
	if name != "find" || arguments != `{"q": "a } b", "n": [1, 2]}` || !strings.HasPrefix(id, "chatcmpl-tool-") {
		t.Errorf("call %s %s(%s)", id, name, arguments)
	}
	last := choiceOf(chunks[len(chunks)-1])
	if last["finish_reason"] != "tool_calls" {
		t.Errorf("finish_reason %v, want tool_calls", last["finish_reason"])
	}
	named := streamed(t, i, wire.PathChat, with(body, object{"tool_choice": object{"type": "function", "function": object{"name": "find"}}}))
	if got := choiceOf(named[len(named)-1])["finish_reason"]; got != "stop" {
		t.Errorf("finish_reason of a named tool %v, want stop", got)
	}
	none := streamed(t, i, wire.PathChat, with(body, object{"tool_choice": "none"}))
	if text := joined(none, "content"); !strings.Contains(text, `"name": "find"`) {
		t.Errorf("with tool_choice none the text is %q, want the call as text", text)
	}
}

func TestStream_Reasoning(t *testing.T) {
	i := startInstance(t, nil)
	chunks := streamed(t, i, wire.PathChat, object{"messages": []any{user("THINK SAY done")}})
	order := ""
	for _, chunk := range chunks[1:] {
		delta := choiceOf(chunk)["delta"].(object)
		switch {
		case delta["reasoning"] != nil:
			order += "r"
		case delta["content"] != nil && delta["content"] != "":
			order += "c"
		}
	}
	if trimmed := strings.TrimLeft(order, "r"); trimmed == order || strings.Contains(trimmed, "r") || trimmed == "" {
		t.Errorf("order of deltas %s, want reasoning and then content", order)
	}
	if got := joined(chunks, "content"); got != "done" {
		t.Errorf("content %q, want done", got)
	}
	hidden := streamed(t, i, wire.PathChat, object{"messages": []any{user("THINK SAY done")}, "include_reasoning": false})
	if got := joined(hidden, "reasoning"); got != "" {
		t.Errorf("reasoning %q although it was not wanted", got)
	}
}
