package vllmsim

import (
	"net/http"
	"reflect"
	"slices"
	"strings"
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

func TestMessages_EmptyAndCutAnswers(t *testing.T) {
	i := startInstance(t, nil)
	if got := post(t, i, wire.PathMessages, messageBody(nil, user("HUSH"))); !strings.Contains(string(got.raw), `"content":[{"type":"text","text":""}]`) {
		t.Errorf("empty answer %s", got.raw)
	}
	cut := messageBody(object{"tools": []any{object{"name": "f", "input_schema": object{}}}, "max_tokens": 15}, user(`CALL f {"city": "Bern and all the other places"}`))
	if text := contentText(t, post(t, i, wire.PathMessages, cut)); !strings.HasPrefix(text, `<tool_call>`) {
		t.Errorf("a call that is cut says %q, want it as text", text)
	}
	if got := blockKinds(t, post(t, i, wire.PathMessages, with(cut, object{"stream": true}))); !slices.Equal(got, []string{"tool_use"}) {
		t.Errorf("a call that is cut streams %v", got)
	}
}

func TestMessages_UsageAddsUpToThePrompt(t *testing.T) {
	i := startInstance(t, func(c *Config) { c.PromptTokensDetails = true; c.Models = []string{"first", "second"} })
	body := with(messageBody(nil, user(longText)), object{"model": "second"})
	for _, reads := range []bool{false, true} {
		whole := post(t, i, wire.PathMessages, body)
		u := whole.body["usage"].(object)
		n := post(t, i, wire.PathMessagesCount, body).body["input_tokens"].(float64)
		read, created := u["cache_read_input_tokens"].(float64), u["cache_creation_input_tokens"].(float64)
		if u["input_tokens"].(float64)+read+created != n || created == 0 || reads != (read > 0) {
			t.Errorf("usage %v of %v tokens, want some read: %v", u, n, reads)
		}
		if whole.body["model"] != "first" {
			t.Errorf("model %v, want the first served name", whole.body["model"])
		}
	}
}

func TestMessages_Refusals(t *testing.T) {
	i := startInstance(t, func(c *Config) { c.MaxModelLen = 512 })
	of := func(kind string) object {
		return messageBody(nil, object{"role": "user", "content": blockParts(object{"type": kind})})
	}
	thinking := messageBody(object{"thinking": object{"type": "enabled", "budget_tokens": 64}}, user("hi"))
	for name, c := range map[string]struct {
		body   any
		status int
		param  string // of OpenAI's shape; empty for Anthropic's
	}{
		"no JSON":          {[]byte(`{"model":x}`), 400, "body.9"},
		"no messages":      {object{"model": "sim", "max_tokens": 1}, 400, "body.messages"},
		"null limit":       {messageBody(object{"max_tokens": nil}, user("hi")), 400, "body.max_tokens"},
		"limit 0":          {messageBody(object{"max_tokens": 0}, user("hi")), 400, "body.max_tokens"},
		"limit of letters": {messageBody(object{"max_tokens": "x"}, user("hi")), 400, "body.max_tokens"},
		"document":         {of("document"), 400, "body.messages.0.content.list[AnthropicContentBlock].0.type"},
		"server tool use":  {of("server_tool_use"), 400, "body.messages.0.content.list[AnthropicContentBlock].0.type"},
		"server tool":      {messageBody(object{"tools": []any{object{"type": "web_search_20250305", "name": "web_search"}}}, user("hi")), 400, "body.tools.0.input_schema"},
		"role":             {messageBody(nil, object{"role": "tool", "content": "x"}), 400, "body.messages.0.role"},
		"no content":       {messageBody(nil, object{"role": "user"}), 400, "body.messages.0.content"},
		"tool choice":      {messageBody(object{"tool_choice": object{"type": "tool"}}, user("hi")), 400, "body.tool_choice"},
		"choice kind":      {messageBody(object{"tool_choice": object{"type": "some"}}, user("hi")), 400, "body.tool_choice.type"},
		"budget":           {thinking, 400, "body.thinking"},
		"params":           {messageBody(object{"kv_transfer_params": 1}, user("hi")), 400, "body.kv_transfer_params"},
		"budget, prefill":  {with(thinking, object{"kv_transfer_params": prefillTemplate()}), 200, ""},
		"ignored members":  {messageBody(object{"n": 3, "stop": 1, "min_tokens": "x", "metadata": object{"user_id": "u"}, "priority": 3}, user("hi")), 200, ""},
		"too long":         {messageBody(object{"max_tokens": 600, "stream": true}, user("hi")), 400, ""},
		"model":            {with(messageBody(nil, user("hi")), object{"model": "x"}), 404, ""},
		"bad ids":          {messageBody(object{"stream": true, "kv_transfer_params": object{"prompt_token_ids": []any{1, "x"}}}, user("hi")), 400, ""},
	} {
		got := post(t, i, wire.PathMessages, c.body)
		if got.status != c.status {
			t.Errorf("%s: answered %d: %s", name, got.status, got.raw)
			continue
		}
		detail, _ := got.body["error"].(object)
		switch {
		case c.status == 200:
		case c.param != "":
			if detail["param"] != c.param || detail["type"] != "Bad Request" {
				t.Errorf("%s: %s, want param %s", name, got.raw, c.param)
			}
		case got.body["type"] != "error" || len(detail) != 2:
			t.Errorf("%s: %s, want Anthropic's shape", name, got.raw)
		}
	}
}

func TestMessages_OtherMethodsAndPaths(t *testing.T) {
	i := startInstance(t, nil)
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{http.MethodHead, "/", 404}, {http.MethodGet, wire.PathMessages, 405}, {http.MethodDelete, wire.PathMessages, 405},
		{http.MethodPost, wire.PathMessages + "/batches", 404}, {http.MethodGet, wire.PathMessagesCount, 405}, {http.MethodGet, wire.PathMessagesRender, 405},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, i.URL()+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := do(t, req); got.status != c.status {
			t.Errorf("%s %s: %d, want %d", c.method, c.path, got.status, c.status)
		}
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

func TestMessages_Faults(t *testing.T) {
	const stop = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
	body := messageBody(object{"max_tokens": 8, "kv_transfer_params": prefillTemplate()}, user("hi"))
	for _, c := range []struct {
		fault  Fault
		broken bool
		check  func(body string) bool
	}{
		{Fault{Kind: FaultReset}, true, func(b string) bool { return b == "" }},
		{Fault{Kind: FaultDieBeforeFirstEvent}, true, func(b string) bool { return b == "" }},
		{Fault{Kind: FaultDieMidEvent, Events: 2}, true, func(b string) bool { return strings.Count(b, "\n\n") == 2 && !strings.HasSuffix(b, "\n\n") }},
		{Fault{Kind: FaultEndWithoutDone}, false, func(b string) bool { return !strings.Contains(b, stop) && strings.HasSuffix(b, "\n\n") }},
		{Fault{Kind: FaultDoubleDone}, false, func(b string) bool { return strings.HasSuffix(b, stop+stop) }},
		{Fault{Kind: FaultEventAfterDone}, false, func(b string) bool {
			return strings.Count(b, `"kv_transfer_params":{`) == 2 && strings.HasSuffix(b, stop)
		}},
		{Fault{Kind: FaultGarbageJSON, Events: 2}, false, func(b string) bool {
			return strings.Contains(b, "event: content_block_delta\ndata: {\"id\":}}garbage\n\n")
		}},
		{Fault{Kind: FaultTruncatedJSON, Events: 0}, false, func(b string) bool { return strings.HasPrefix(b, "event: message_start\ndata: {\"type\"") }},
		{Fault{Kind: FaultErrorBody200}, false, func(b string) bool {
			return b == "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"Internal server error\"}}\n\n"
		}},
		{Fault{Kind: FaultErrorEvent}, false, func(b string) bool { return strings.Contains(b, "event: error\n") && !strings.Contains(b, stop) }},
		{Fault{Kind: FaultNoUsage}, false, func(b string) bool {
			return strings.Contains(b, `"usage":{"input_tokens":0,`) && strings.Contains(b, `"stop_sequence":null},"kv_transfer_params"`)
		}},
		{Fault{Kind: FaultNullParams}, false, func(b string) bool { return !strings.Contains(b, "kv_transfer_params") }},
		{Fault{Kind: FaultBadParams}, false, func(b string) bool { return strings.Contains(b, `"remote_engine_id":"bad"`) }},
	} {
		t.Run(c.fault.Kind, func(t *testing.T) {
			i := startInstance(t, func(c *Config) { c.MessageParams = true })
			setFault(t, i, c.fault)
			_, _, got, err := attemptAt(t, i, wire.PathMessages, with(body, object{"stream": true}))
			if (err != nil) != c.broken || !c.check(got) {
				t.Errorf("error %v, body %q", err, got)
			}
		})
	}
	i := startInstance(t, nil)
	setFault(t, i, Fault{Kind: FaultStatus, Status: 503, Count: 1})
	if got := post(t, i, wire.PathMessages, body); got.status != 503 || got.body["type"] != "error" {
		t.Errorf("answered %d %s", got.status, got.raw)
	}
	setFault(t, i, Fault{Kind: FaultLostAnswer, Count: 1})
	if _, _, got, err := attemptAt(t, i, wire.PathMessages, body); err == nil {
		t.Errorf("a lost answer is %q, want an error", got)
	}
	setFault(t, i, Fault{Kind: FaultErrorBody200, Count: 1})
	if got := post(t, i, wire.PathMessages, body); got.status != 200 || got.body["type"] != "error" {
		t.Errorf("answered %d %s", got.status, got.raw)
	}
}
