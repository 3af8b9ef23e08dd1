package vllmsim

import (
	"reflect"
	"slices"
	"testing"

	"carryover/upstream/vllmsim/wire"
)

// blockKinds lists what blocks a stream has, in their order, and checks its grammar.
func blockKinds(t *testing.T, got answer) []string {
	t.Helper()
	events := messageFrames(t, string(got.raw))
	if events[0].name != "message_start" || events[len(events)-1] != (messageFrame{"message_stop", `{"type":"message_stop"}`}) || events[len(events)-2].name != "message_delta" {
		t.Errorf("stream of wrong ends: %s", got.raw)
	}
	var list []string
	open := ""
	for _, e := range events[1 : len(events)-2] {
		o := frameObject(t, e)
		index := len(list) - 1
		switch e.name {
		case "content_block_start":
			if open != "" {
				t.Errorf("block in block: %s", got.raw)
			}
			open = o["content_block"].(object)["type"].(string)
			list = append(list, open)
			index++
		case "content_block_delta":
			kind := o["delta"].(object)["type"].(string)
			if !slices.Contains(map[string][]string{"text": {"text_delta"}, "thinking": {"thinking_delta", "signature_delta"}, "tool_use": {"input_json_delta"}}[open], kind) {
				t.Errorf("%s in block %q: %s", kind, open, got.raw)
			}
		case "content_block_stop":
			open = ""
		default:
			t.Errorf("unexpected %s", e.name)
		}
		if o["index"] != float64(index) {
			t.Errorf("index %v, want %d", o["index"], index)
		}
	}
	return list
}

func TestMessages_WholeAndStreamAgree(t *testing.T) {
	tools := object{"tools": []any{object{"name": "f", "input_schema": object{"type": "object"}}}, "max_tokens": 300}
	for _, c := range []struct {
		name, order string
		members     object
		blocks      []string
		stop        string
		sequence    any
	}{
		{"text", "SAY the end", nil, []string{"text"}, "end_turn", nil},
		{"limit", "Tell me.", object{"max_tokens": 3}, []string{"text"}, "max_tokens", nil},
		{"stop sequence", "SAY one two three", object{"stop_sequences": []string{"two"}}, []string{"text"}, "stop_sequence", "two"},
		{"thinking", "THINK SAY well", object{"max_tokens": 300}, []string{"thinking", "text"}, "end_turn", nil},
		{"tool", `CALL f {"city": "Bern", "n": [1, 2.5]}`, tools, []string{"tool_use"}, "tool_use", nil},
		{"thinking and tool", `THINK CALL f {"city": "Bern"}`, tools, []string{"thinking", "tool_use"}, "tool_use", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			i := startInstance(t, nil)
			body := messageBody(c.members, user(c.order))
			whole := post(t, i, wire.PathMessages, body)
			stream := post(t, i, wire.PathMessages, with(body, object{"stream": true}))
			var have []string
			for _, block := range whole.body["content"].([]any) {
				have = append(have, block.(object)["type"].(string))
			}
			if got := blockKinds(t, stream); !slices.Equal(got, c.blocks) || !slices.Equal(have, c.blocks) {
				t.Errorf("blocks %v and %v, want %v", have, got, c.blocks)
			}
			text, end := streamedMessage(t, stream)
			if want := contentText(t, whole); text != want {
				t.Errorf("stream says %q, whole answer %q", text, want)
			}
			delta := end["delta"].(object)
			if whole.body["stop_reason"] != c.stop || whole.body["stop_sequence"] != c.sequence || delta["stop_reason"] != c.stop || delta["stop_sequence"] != c.sequence {
				t.Errorf("stopped by %v %v, stream %v; want %s %v", whole.body["stop_reason"], whole.body["stop_sequence"], delta, c.stop, c.sequence)
			}
			if !reflect.DeepEqual(whole.body["usage"], end["usage"]) {
				t.Errorf("usage %v, stream %v", whole.body["usage"], end["usage"])
			}
		})
	}
}

func TestMessages_ExpiredTicketIsInternalError(t *testing.T) {
	p, d := startPair(t, func(c *Config) { c.Render = true })
	body := messageBody(nil, user(longText))
	params := prefilledByIDs(t, p, renderedIDs(t, p, wire.PathMessages, body), prefillTemplate())
	p.Restart()
	got := post(t, d, wire.PathMessages, with(body, object{"kv_transfer_params": params}))
	if want := `{"type":"error","error":{"type":"api_error","message":"Internal server error"}}`; got.status != 500 || string(got.raw) != want {
		t.Errorf("answered %d %s", got.status, got.raw)
	}
	stream := messageFrames(t, string(post(t, d, wire.PathMessages, with(body, object{"stream": true, "kv_transfer_params": params})).raw))
	if len(stream) != 2 || stream[0].name != "message_start" || stream[1].name != "error" {
		t.Errorf("stream %v", stream)
	}
}
