package vllmsim

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"carryover/upstream/vllmsim/wire"
)

// responseBody is a request of the Responses API; input is a text or a list of items.
func responseBody(members object, input any) object {
	return with(object{"model": "sim", "max_output_tokens": 64, "input": input}, members)
}

func itemsOf(list ...object) []object { return list }

func itemOf(role string, parts ...object) object {
	return object{"type": "message", "role": role, "content": parts}
}

func partOf(kind, text string) object { return object{"type": kind, "text": text} }

// outputText joins the texts of the messages of a whole response.
func outputText(t *testing.T, response object) string {
	t.Helper()
	text := ""
	for _, item := range response["output"].([]any) {
		parts, _ := item.(object)["content"].([]any)
		for _, p := range parts {
			if p.(object)["type"] == "output_text" {
				text += p.(object)["text"].(string)
			}
		}
	}
	return text
}

// responded is a whole response with status 200.
func responded(t *testing.T, got answer) object {
	t.Helper()
	if got.status != http.StatusOK {
		t.Fatalf("answered %d: %s", got.status, got.raw)
	}
	return got.body
}

// streamedResponse is what a stream says: the text of its deltas, and the response of its end.
func streamedResponse(t *testing.T, got answer) (text string, end object) {
	t.Helper()
	for _, e := range messageFrames(t, string(got.raw)) {
		o := frameObject(t, e)
		switch e.name {
		case "response.output_text.delta":
			text += o["delta"].(string)
		case "response.completed", "response.incomplete":
			end = o["response"].(object)
		}
	}
	if end == nil {
		t.Fatalf("no end: %s", got.raw)
	}
	return text, end
}

// messageIDs are the ids that enable_response_messages tells.
func messageIDs(response object, member string) []int32 {
	list, _ := response[member].([]any)
	if len(list) != 1 {
		return nil
	}
	return ids(list[0].(object)["tokens"])
}

func TestResponses_RenderAsTheirChatTranslation(t *testing.T) {
	schema := object{"type": "object", "properties": object{"city": object{"type": "string"}}}
	call := object{"type": "function_call", "call_id": "c", "name": "f", "arguments": `{"city":"Zürich"}`}
	result := object{"type": "function_call_output", "call_id": "c", "output": "12 C"}
	chatCall := object{"id": "c", "type": "function", "function": object{"name": "f", "arguments": `{"city":"Zürich"}`}}
	for name, c := range map[string]struct{ response, chat object }{
		"text and instructions": {
			responseBody(object{"instructions": "Be kind."}, "hi"),
			object{"messages": []any{object{"role": "system", "content": "Be kind."}, user("hi")}},
		},
		"messages without type": {
			responseBody(nil, itemsOf(user("hi"), assistant("hello"), user("and?"))),
			object{"messages": []any{user("hi"), assistant("hello"), user("and?")}},
		},
		"parts": {
			responseBody(nil, itemsOf(itemOf("developer", partOf("input_text", "x")), itemOf("user", partOf("input_text", "a"), partOf("input_text", "b")))),
			object{"messages": []any{object{"role": "developer", "content": "x"}, user("a\nb")}},
		},
		"first part of an assistant alone": {
			responseBody(nil, itemsOf(user("hi"), itemOf("assistant", partOf("output_text", "one"), partOf("output_text", "two")), user("and?"))),
			object{"messages": []any{user("hi"), assistant("one"), user("and?")}},
		},
		"thought, text, calls and results": {
			responseBody(object{"tools": []any{object{"type": "function", "name": "f", "description": "F", "parameters": schema, "strict": true}}},
				itemsOf(user("go"), object{"type": "reasoning", "summary": []any{}, "content": []any{partOf("reasoning_text", "hm")}},
					itemOf("assistant", partOf("output_text", "ok")), call, call, result, result, user("go on"))),
			object{"tools": []any{json.RawMessage(`{"type":"function","function":{"name":"f","description":"F","parameters":` + string(wire.RawJSON(schema)) + `}}`)},
				"messages": []any{user("go"), object{"role": "assistant", "reasoning": "hm", "content": "ok", "tool_calls": []any{chatCall, chatCall}},
					object{"role": "tool", "content": "12 C"}, object{"role": "tool", "content": "12 C"}, user("go on")}},
		},
		"two texts are two messages": {
			responseBody(nil, itemsOf(user("go"), itemOf("assistant", partOf("output_text", "a")), itemOf("assistant", partOf("output_text", "b")), user("x"))),
			object{"messages": []any{user("go"), assistant("a"), assistant("b"), user("x")}},
		},
		"two thoughts are two messages": {
			responseBody(nil, itemsOf(user("go"), object{"type": "reasoning", "content": []any{partOf("reasoning_text", "a")}}, object{"type": "reasoning", "content": []any{partOf("reasoning_text", "b")}}, user("x"))),
			object{"messages": []any{user("go"), object{"role": "assistant", "reasoning": "a"}, object{"role": "assistant", "reasoning": "b"}, user("x")}},
		},
		"summary of a thought, parts of a result": {
			responseBody(nil, itemsOf(user("go"), object{"type": "reasoning", "summary": []any{partOf("summary_text", "hm")}}, call,
				object{"type": "function_call_output", "call_id": "c", "output": []any{partOf("input_text", "12 C")}})),
			object{"messages": []any{user("go"), object{"role": "assistant", "reasoning": "hm", "tool_calls": []any{chatCall}}, object{"role": "tool", "content": "12 C"}}},
		},
		"tools of the server": {
			responseBody(object{"tools": []any{object{"type": "web_search"}, object{"type": "local_shell"}}}, "hi"),
			object{"messages": []any{user("hi")}},
		},
		"image": {
			responseBody(nil, itemsOf(itemOf("user", partOf("input_text", "see"), object{"type": "input_image", "image_url": "data:image/png;base64,QUJD"}))),
			object{"messages": []any{object{"role": "user", "content": blockParts(textBlock("see"), object{"type": "image_url", "image_url": object{"url": "data:image/png;base64,QUJD"}})}}},
		},
		"effort": {
			responseBody(object{"reasoning": object{"effort": "low"}}, "hi"),
			object{"messages": []any{user("hi")}, "reasoning_effort": "low"},
		},
		"arguments of the template": {
			responseBody(object{"chat_template_kwargs": object{"documents": []string{"x"}}}, "hi"),
			object{"messages": []any{user("hi")}, "chat_template_kwargs": object{"documents": []string{"x"}}},
		},
		"answer to go on with": {
			responseBody(nil, itemsOf(user("hi"), with(itemOf("assistant", partOf("output_text", "well")), object{"status": "incomplete"}))),
			object{"messages": []any{user("hi"), assistant("well")}, "continue_final_message": true, "add_generation_prompt": false},
		},
		"answer that is complete": {
			responseBody(nil, itemsOf(user("hi"), with(itemOf("assistant", partOf("output_text", "well")), object{"status": "completed"}))),
			object{"messages": []any{user("hi"), assistant("well")}},
		},
	} {
		i := startInstance(t, func(c *Config) { c.Render = true })
		got, want := renderedIDs(t, i, wire.PathResponses, c.response), renderedIDs(t, i, wire.PathChat, with(c.chat, object{"model": "sim"}))
		if !slices.Equal(got, want) {
			t.Errorf("%s: rendered\n%q\nas chat\n%q", name, i.tok.Decode(got), i.tok.Decode(want))
		}
		answer := responded(t, post(t, i, wire.PathResponses, with(c.response, object{"enable_response_messages": true})))
		if used := messageIDs(answer, "input_messages"); !slices.Equal(used, want) {
			t.Errorf("%s: used %q", name, i.tok.Decode(used))
		}
	}
}

func TestResponses_RenderNeedsScaleOut(t *testing.T) {
	i := startInstance(t, nil)
	if got := post(t, i, wire.PathResponsesRender, responseBody(nil, "hi")); got.status != http.StatusForbidden || !strings.Contains(string(got.raw), "--enable-scale-out") {
		t.Errorf("answered %d: %s", got.status, got.raw)
	}
	on := true
	if err := i.Switch(Switches{Render: &on}); err != nil {
		t.Fatal(err)
	}
	if got := post(t, i, wire.PathResponsesRender, responseBody(object{"previous_response_id": "resp_1"}, "hi")); got.status != http.StatusNotFound {
		t.Errorf("with previous_response_id answered %d: %s", got.status, got.raw)
	}
}

// TestResponses_AnyPrefillServesThem has prefill speak each API that tells the ids, and decode this one, whole and in events.
func TestResponses_AnyPrefillServesThem(t *testing.T) {
	for _, stream := range []bool{false, true} {
		for _, path := range []string{wire.PathResponses, wire.PathChat, wire.PathCompletions} {
			p, d := startPair(t, func(c *Config) { c.Render = true })
			body := responseBody(object{"cache_salt": "tenant", "max_output_tokens": 16, "enable_response_messages": true}, longText)
			lone := responded(t, post(t, startInstance(t, nil), wire.PathResponses, body))
			prompt := renderedIDs(t, p, wire.PathResponses, body)
			leg := map[string]object{
				wire.PathResponses:   responseBody(object{"max_output_tokens": 1}, longText),
				wire.PathChat:        {"model": "sim", "messages": []any{user(longText)}, "max_tokens": 1},
				wire.PathCompletions: {"model": "sim", "prompt": prompt, "max_tokens": 1},
			}[path]
			prefill := post(t, p, path, with(leg, object{"cache_salt": "tenant", "kv_transfer_params": prefillTemplate()}))
			forced := object{"kv_transfer_params": with(prefill.params(), object{"prompt_token_ids": prompt}), "stream": stream}
			got := post(t, d, wire.PathResponses, with(body, forced))
			end := got.body
			if stream {
				_, end = streamedResponse(t, got)
			}
			if text := outputText(t, end); text != outputText(t, lone) || !slices.Equal(messageIDs(end, "output_messages"), messageIDs(lone, "output_messages")) {
				t.Errorf("%s, stream %v: says %q, alone %q", path, stream, text, outputText(t, lone))
			}
			if !slices.Equal(messageIDs(end, "input_messages"), prompt) {
				t.Errorf("%s, stream %v: tells another prompt", path, stream)
			}
			if s := d.Stats(); s.ComputedTokens > 1 || s.Loads != 1 || s.OtherSalts != 0 {
				t.Errorf("%s, stream %v: decode counted %+v", path, stream, s)
			}
			assertClean(t, p, d)
		}
	}
}

// TestResponses_TicketsServeOtherAPIs has the second turn's prefill read what decode holds of a response.
func TestResponses_TicketsServeOtherAPIs(t *testing.T) {
	for _, path := range []string{wire.PathResponses, wire.PathChat, wire.PathCompletions, wire.PathMessages} {
		p, d := startPair(t, func(c *Config) { c.Render = true })
		body := responseBody(object{"max_output_tokens": 16, "enable_response_messages": true, "stream": true}, longText)
		params := prefilledByIDs(t, p, renderedIDs(t, p, wire.PathResponses, body), prefillTemplate())
		_, end := streamedResponse(t, post(t, d, wire.PathResponses, with(body, object{"kv_transfer_params": params})))
		held := slices.Concat(messageIDs(end, "input_messages"), messageIDs(end, "output_messages"))
		ticket := end["kv_transfer_params"].(object)
		n := int(ticket["remote_num_tokens"].(float64)) / 16
		group := ticket["remote_block_ids"].([]any)[0].([]any)
		ticket = with(ticket, object{"remote_num_tokens": n * 16, "remote_block_ids": []any{group[:n]}, "prompt_token_ids": append(held, held[:8]...)})
		p.ClearBlocks() // else prefill has them itself
		leg := map[string]object{
			wire.PathResponses:   responseBody(object{"max_output_tokens": 1}, "x"),
			wire.PathChat:        {"model": "sim", "messages": []any{user("x")}, "max_tokens": 1},
			wire.PathCompletions: {"model": "sim", "prompt": ticket["prompt_token_ids"], "max_tokens": 1},
			wire.PathMessages:    messageBody(object{"max_tokens": 1}, user("x")),
		}[path]
		if got := post(t, p, path, with(leg, object{"kv_transfer_params": ticket})); got.status != http.StatusOK {
			t.Fatalf("%s answered %d: %s", path, got.status, got.raw)
		}
		if s := p.Stats(); s.Loads != 1 || s.ExternalTokens != n*16 {
			t.Errorf("%s: prefill read %d tokens in %d loads, want %d", path, s.ExternalTokens, s.Loads, n*16)
		}
		assertClean(t, p, d)
	}
}

func TestResponses_ForcedIDsWinOverTheInput(t *testing.T) {
	i := startInstance(t, func(c *Config) { c.Render = true })
	prompt := renderedIDs(t, i, wire.PathResponses, responseBody(nil, "SAY forwarded"))
	forced := object{"kv_transfer_params": object{"prompt_token_ids": prompt}, "enable_response_messages": true}
	got := responded(t, post(t, i, wire.PathResponses, responseBody(forced, "SAY rendered")))
	if text := outputText(t, got); text != "forwarded" {
		t.Errorf("says %q", text)
	}
	if message := got["input_messages"].([]any)[0].(object)["message"]; message != "" {
		t.Errorf("tells the text %q of ids that were forced", message)
	}
	if got := renderedIDs(t, i, wire.PathResponses, responseBody(forced, "SAY rendered")); !slices.Equal(got, prompt) {
		t.Error("render ignores forced ids")
	}
}

func TestResponses_RequestIDNamesTheResponse(t *testing.T) {
	i := startInstance(t, func(c *Config) { c.RequestIDHeaders = true })
	got := responded(t, post(t, i, wire.PathResponses, responseBody(object{"request_id": "resp_mine", "kv_transfer_params": prefillTemplate()}, "hi")))
	inside, _ := got["kv_transfer_params"].(object)["remote_request_id"].(string)
	if got["id"] != "resp_mine" || !strings.HasPrefix(inside, "resp_mine_0-") {
		t.Errorf("id %v, inside %q", got["id"], inside)
	}
	if got := responded(t, post(t, i, wire.PathResponses, responseBody(nil, "hi"))); !strings.HasPrefix(got["id"].(string), "resp_") {
		t.Errorf("id %v", got["id"])
	}
}

func TestResponses_LoneIsWhatAStreamSays(t *testing.T) {
	cfg := DefaultConfig()
	raw, err := Lone(t.Context(), cfg, wire.PathResponses, wire.RawJSON(responseBody(nil, longText)))
	if err != nil {
		t.Fatal(err)
	}
	var lone object
	if err := json.Unmarshal(raw, &lone); err != nil {
		t.Fatal(err)
	}
	text, end := streamedResponse(t, post(t, startInstance(t, nil), wire.PathResponses, responseBody(object{"stream": true}, longText)))
	if text == "" || text != outputText(t, lone) || text != outputText(t, end) {
		t.Errorf("alone %q, deltas %q, end %q", outputText(t, lone), text, outputText(t, end))
	}
}
