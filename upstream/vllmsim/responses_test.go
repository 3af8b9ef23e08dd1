package vllmsim

import (
	"net/http"
	"slices"
	"testing"

	"carryover/upstream/vllmsim/recordedtest"
	"carryover/upstream/vllmsim/wire"
)

// responseBody is a request of the Responses API; input is a text or a list of items.
func responseBody(members object, input any) object {
	return with(object{"model": "sim", "max_output_tokens": 64, "input": input}, members)
}

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
	got.answers(t, http.StatusOK)
	return got.body
}

// streamedResponse is what a stream says: the text of its deltas, and the response of its end.
func streamedResponse(t *testing.T, got answer) (text string, end object) {
	t.Helper()
	for _, e := range recordedtest.Frames(t, string(got.raw)) {
		o := frameObject(t, e)
		switch e.Name {
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
