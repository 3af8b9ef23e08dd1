package vllmsim

import (
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"carryover/upstream/vllmsim/wire"
)

// itemKinds lists what items a stream has, in their order, and checks its grammar.
func itemKinds(t *testing.T, got answer) []string {
	t.Helper()
	events := messageFrames(t, string(got.raw))
	var list, names []string
	kind, id, text := "", "", ""
	for n, e := range events {
		o := frameObject(t, e)
		if o["sequence_number"] != float64(n) {
			t.Errorf("event %d has number %v", n, o["sequence_number"])
		}
		names = append(names, strings.TrimPrefix(e.name, "response."))
		if index, ok := o["output_index"]; ok && e.name != "response.output_item.added" && index != float64(len(list)-1) {
			t.Errorf("%s has index %v, want %d", e.name, index, len(list)-1)
		}
		if have, ok := o["item_id"]; ok && have != id {
			t.Errorf("%s is of item %v, want %s", e.name, have, id)
		}
		switch names[n] {
		case "output_item.added":
			item := o["item"].(object)
			kind, id, text = item["type"].(string), item["id"].(string), ""
			list = append(list, kind)
		case "output_text.delta", "reasoning_text.delta", "function_call_arguments.delta":
			text += o["delta"].(string)
		case "output_text.done", "reasoning_text.done":
			if o["text"] != text {
				t.Errorf("%s says %v, deltas %q", e.name, o["text"], text)
			}
		case "function_call_arguments.done":
			if o["arguments"] != text {
				t.Errorf("%s says %v, deltas %q", e.name, o["arguments"], text)
			}
		}
	}
	want := []string{"created", "in_progress"}
	for _, kind := range list {
		delta := map[string]string{"message": "output_text", "reasoning": "reasoning_text", "function_call": "function_call_arguments"}[kind]
		if kind == "function_call" {
			want = append(want, "output_item.added", delta+".delta", delta+".done", "output_item.done")
		} else {
			want = append(want, "output_item.added", "content_part.added", delta+".delta", delta+".done", "content_part.done", "output_item.done")
		}
	}
	_, end := streamedResponse(t, got)
	want = append(want, end["status"].(string)) // since 0.33 the last event is named like the status
	if once := slices.Compact(slices.Clone(names)); !slices.Equal(once, want) {
		t.Errorf("events %v, want %v", once, want)
	}
	return list
}

// bare is an output without what is random or differs between the two forms of an answer: ids, and the status of thoughts.
func bare(response object) []any {
	var list []any
	for _, item := range response["output"].([]any) {
		o := with(item.(object), object{"id": "", "call_id": ""})
		if o["type"] == "reasoning" {
			o["status"] = nil
		}
		list = append(list, o)
	}
	return list
}

func TestResponses_WholeAndStreamAgree(t *testing.T) {
	tools := object{"tools": []any{object{"type": "function", "name": "f", "parameters": object{"type": "object"}}}, "max_output_tokens": 300}
	for _, c := range []struct {
		name, order string
		members     object
		items       []string
		status      string
		params      bool
	}{
		{"text", "SAY the end", nil, []string{"message"}, "completed", true},
		{"nothing", "HUSH", nil, nil, "completed", true},
		{"limit", "Tell me.", object{"max_output_tokens": 3}, []string{"message"}, "incomplete", true},
		{"stop string", "SAY one two three", object{"stop": []string{"two"}}, []string{"message"}, "completed", false},
		{"thinking", "THINK SAY well", object{"max_output_tokens": 300}, []string{"reasoning", "message"}, "completed", true},
		{"hidden thinking", "THINK SAY well", object{"include_reasoning": false}, []string{"message"}, "completed", true},
		{"tool", `CALL f {"city": "Bern", "n": [1, 2.5]}`, tools, []string{"function_call"}, "completed", true},
		{"thinking and tool", `THINK CALL f {"city": "Bern"}`, tools, []string{"reasoning", "function_call"}, "completed", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			i := startInstance(t, nil)
			body := responseBody(with(object{"kv_transfer_params": prefillTemplate(), "enable_response_messages": true}, c.members), c.order)
			whole := responded(t, post(t, i, wire.PathResponses, body))
			stream := post(t, i, wire.PathResponses, with(body, object{"stream": true}))
			var have []string
			for _, item := range whole["output"].([]any) {
				have = append(have, item.(object)["type"].(string))
			}
			if got := itemKinds(t, stream); !slices.Equal(got, c.items) || !slices.Equal(have, c.items) {
				t.Errorf("items %v and %v, want %v", have, got, c.items)
			}
			text, end := streamedResponse(t, stream)
			if want := outputText(t, whole); text != want {
				t.Errorf("stream says %q, whole answer %q", text, want)
			}
			if !reflect.DeepEqual(bare(whole), bare(end)) {
				t.Errorf("output %v, stream %v", bare(whole), bare(end))
			}
			for _, o := range []object{whole, end} {
				details, _ := o["incomplete_details"].(object)
				if o["status"] != c.status || (c.status == "incomplete") != (details["reason"] == "max_output_tokens") || (o["kv_transfer_params"] != nil) != c.params {
					t.Errorf("status %v %v, params %v; want %s, params %v", o["status"], details, o["kv_transfer_params"], c.status, c.params)
				}
				thoughts := o["usage"].(object)["output_tokens_details"].(object)["reasoning_tokens"].(float64)
				if (thoughts > 0) != strings.HasPrefix(c.order, "THINK") {
					t.Errorf("%v tokens of thought", thoughts)
				}
			}
			for _, member := range []string{"usage", "output_messages", "input_messages"} {
				if !reflect.DeepEqual(whole[member], end[member]) {
					t.Errorf("%s %v, stream %v", member, whole[member], end[member])
				}
			}
		})
	}
}

func TestResponses_PlaceholdersAreNullUntilTheEnd(t *testing.T) {
	i := startInstance(t, nil)
	body := responseBody(object{"stream": true, "kv_transfer_params": prefillTemplate()}, "hi")
	for _, asks := range []bool{false, true} {
		events := messageFrames(t, string(post(t, i, wire.PathResponses, with(body, object{"enable_response_messages": asks})).raw))
		for _, e := range []messageFrame{events[0], events[1], events[len(events)-1]} {
			o := frameObject(t, e)["response"].(object)
			last := e.name == "response.completed"
			for member, there := range map[string]bool{"kv_transfer_params": last, "usage": last, "input_messages": last && asks, "output_messages": last && asks} {
				if have, ok := o[member]; !ok || (have != nil) != there {
					t.Errorf("%s: %s is %v, want one: %v", e.name, member, have, there)
				}
			}
		}
	}
}

func TestResponses_StopsAndEnds(t *testing.T) {
	i := startInstance(t, nil)
	for _, c := range []struct {
		order   string
		members object
		text    string
		tokens  float64 // 0: any
	}{
		{"SAY one two three", object{"stop": "two"}, "one ", 0},
		{"SAY one two three", object{"stop": "two", "include_stop_str_in_output": true}, "one two", 0},
		{"SAY one", object{"ignore_eos": true, "max_output_tokens": 30}, "", 30},
	} {
		got := responded(t, post(t, i, wire.PathResponses, responseBody(c.members, c.order)))
		if text := outputText(t, got); c.text != "" && text != c.text {
			t.Errorf("%v: says %q, want %q", c.members, text, c.text)
		}
		if n := got["usage"].(object)["output_tokens"]; c.tokens != 0 && n != c.tokens {
			t.Errorf("%v: %v tokens, want %v", c.members, n, c.tokens)
		}
	}
}

func TestResponses_CutCalls(t *testing.T) {
	i := startInstance(t, nil)
	cut := responseBody(object{"tools": []any{object{"type": "function", "name": "f"}}, "max_output_tokens": 15}, `CALL f {"city": "Bern and all the other places"}`)
	if text := outputText(t, responded(t, post(t, i, wire.PathResponses, cut))); !strings.HasPrefix(text, `<tool_call>`) {
		t.Errorf("a call that is cut says %q, want it as text", text)
	}
	if got := itemKinds(t, post(t, i, wire.PathResponses, with(cut, object{"stream": true}))); !slices.Equal(got, []string{"function_call"}) {
		t.Errorf("a call that is cut streams %v", got)
	}
}

func TestResponses_UsageAndModel(t *testing.T) {
	i := startInstance(t, func(c *Config) { c.PromptTokensDetails = true; c.Models = []string{"first", "second"} })
	body := with(responseBody(object{"enable_response_messages": true}, longText), object{"model": "second"})
	for _, reads := range []bool{false, true} {
		got := responded(t, post(t, i, wire.PathResponses, body))
		u := got["usage"].(object)
		d := u["input_tokens_details"].(object)
		prompt := len(messageIDs(got, "input_messages"))
		if u["input_tokens"] != float64(prompt) || reads != (d["cached_tokens"].(float64) > 0) || int(d["cached_tokens"].(float64)+d["cache_write_tokens"].(float64)) != prompt/16*16 {
			t.Errorf("usage %v of %d tokens, want some read: %v", u, prompt, reads)
		}
		if got["model"] != "first" {
			t.Errorf("model %v, want the first served name", got["model"])
		}
	}
}

func TestResponses_Refusals(t *testing.T) {
	i := startInstance(t, func(c *Config) { c.MaxModelLen = 512 })
	of := func(item object) object { return responseBody(nil, itemsOf(user("hi"), item)) }
	tool := func(members object) object { return responseBody(object{"tools": []any{members}}, "hi") }
	for name, c := range map[string]struct {
		body   any
		status int
		param  any
	}{
		"no JSON":               {[]byte(`{"model":x}`), 400, "body.9"},
		"no input":              {object{"model": "sim"}, 400, "body.input"},
		"input of numbers":      {responseBody(nil, 3), 400, "body.input.str"},
		"limit 0":               {responseBody(object{"max_output_tokens": 0, "stream": true}, "hi"), 400, "max_tokens"},
		"limit of letters":      {responseBody(object{"max_output_tokens": "x"}, "hi"), 400, "body.max_output_tokens"},
		"prompt":                {responseBody(object{"prompt": object{"id": "p"}}, "hi"), 400, "prompt"},
		"background, no store":  {responseBody(object{"background": true, "store": false}, "hi"), 400, "body"},
		"background":            {responseBody(object{"background": true}, "hi"), 400, "background"},
		"previous response":     {responseBody(object{"previous_response_id": "resp_1"}, "hi"), 404, "response_id"},
		"include":               {responseBody(object{"include": []string{"x"}}, "hi"), 400, "body.include.0"},
		"encrypted thought":     {of(object{"type": "reasoning", "summary": []any{}, "encrypted_content": "x"}), 400, nil},
		"reference":             {of(object{"type": "item_reference", "id": "msg_1"}), 400, "body.input.1.type"},
		"role":                  {of(object{"role": "tool", "content": "x"}), 400, "body.input.1.role"},
		"file":                  {of(itemOf("user", object{"type": "input_file"})), 400, "body.input.1.content"},
		"grammar":               {tool(object{"type": "custom", "name": "f", "format": object{"type": "grammar"}}), 400, "body.tools.0"},
		"nameless tool":         {tool(object{"type": "function"}), 400, "body.tools.0.function.name"},
		"params":                {responseBody(object{"kv_transfer_params": 1}, "hi"), 400, "body.kv_transfer_params"},
		"stop":                  {responseBody(object{"stop": 1}, "hi"), 400, "body.stop"},
		"effort":                {responseBody(object{"reasoning": 1}, "hi"), 400, "body"},
		"bad ids":               {responseBody(object{"stream": true, "kv_transfer_params": object{"prompt_token_ids": []any{1, "x"}}}, "hi"), 400, "kv_transfer_params.prompt_token_ids"},
		"too long":              {responseBody(object{"max_output_tokens": 600, "stream": true}, "hi"), 400, "max_output_tokens"},
		"model":                 {with(responseBody(nil, "hi"), object{"model": "x"}), 404, "model"},
		"ignored members":       {responseBody(object{"n": 3, "min_tokens": "x", "conversation": "c", "return_token_ids": true, "store": true, "metadata": object{"a": "b"}}, "hi"), 200, nil},
		"known include, no cap": {object{"model": "sim", "input": "hi", "include": []string{"reasoning.encrypted_content"}}, 200, nil},
		"tools of the server":   {tool(object{"type": "web_search"}), 200, nil},
	} {
		got := post(t, i, wire.PathResponses, c.body)
		detail, _ := got.body["error"].(object)
		if got.status != c.status || detail["param"] != c.param || c.status != 200 && len(detail) != 4 {
			t.Errorf("%s: answered %d %s, want %d and param %v", name, got.status, got.raw, c.status, c.param)
		}
	}
}

func TestResponses_OtherMethodsAndPaths(t *testing.T) {
	i := startInstance(t, nil)
	for _, c := range []struct {
		method, path string
		status       int
		param        any
	}{
		{http.MethodGet, wire.PathResponses, 405, nil}, {http.MethodGet, wire.PathResponses + "/resp_1", 404, "response_id"}, {http.MethodDelete, wire.PathResponses + "/resp_1", 405, nil},
		{http.MethodPost, wire.PathResponses + "/resp_1/cancel", 404, "response_id"}, {http.MethodGet, wire.PathResponses + "/resp_1/cancel", 405, nil},
		{http.MethodPost, wire.PathResponses + "/compact", 405, nil}, {http.MethodGet, wire.PathResponses + "/resp_1/input_items", 404, nil}, {http.MethodPost, "/v1/conversations", 404, nil},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, i.URL()+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := do(t, req)
		detail, _ := got.body["error"].(object)
		if got.status != c.status || detail["param"] != c.param {
			t.Errorf("%s %s: %d %s, want %d and param %v", c.method, c.path, got.status, got.raw, c.status, c.param)
		}
	}
}
