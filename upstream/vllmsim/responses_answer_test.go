package vllmsim

import (
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
