package lmcache

import (
	"bytes"
	"carryover/upstream/exchangetest"
	"encoding/json"
	"strings"
	"testing"

	"carryover/upstream"
	"carryover/upstream/body"
)

// continuationOf is the rewriting of an answer that begins with this text.
func continuationOf(t *testing.T, api body.API, body, text string) upstream.Rewriter {
	t.Helper()
	h, err := newBench(nil).plan(t, transfer(t, api, body, 3)).Handover(answered(firstAnswer(text, 3)))
	if err != nil || h.Rewrite == nil {
		t.Fatalf("got %+v, %v, want one to go on behind", h, err)
	}
	return h.Rewrite
}

const (
	streamed = `{"max_tokens":9,"logprobs":true,"top_logprobs":1,"return_token_ids":true,"stream":true,"stream_options":{"include_usage":true}}`
	inOne    = `{"max_tokens":9,"logprobs":true,"top_logprobs":1,"return_token_ids":true}`
)

// FuzzEvent: whatever decode sends, the client gets one line of JSON, and a chat never a text completion's chunk; text is kept.
func FuzzEvent(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, api := range []body.API{body.Chat, body.Text} {
			out := continuationOf(t, api, streamed, "x").Event(bytes.Clone(data))
			if !json.Valid(out) || bytes.ContainsAny(out, "\r\n") {
				t.Fatalf("Event(%q) = %q, want one line of JSON", data, out)
			}
			if bytes.Contains(out, []byte(unreadable)) {
				continue
			}
			in, got := texts(t, data, "text"), texts(t, out, map[body.API]string{body.Chat: "delta", body.Text: "text"}[api])
			if in != got {
				t.Fatalf("Event(%q) = %q, with text %q, want %q", data, out, got, in)
			}
		}
	})
}

// texts is the text of all choices of an event; of one with an error none.
func texts(t *testing.T, data []byte, member string) (all string) {
	t.Helper()
	var chunk map[string]json.RawMessage
	if err := json.Unmarshal(data, &chunk); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	if failure := chunk["error"]; failure != nil && string(failure) != "null" {
		return ""
	}
	var choices []map[string]json.RawMessage
	_ = json.Unmarshal(chunk["choices"], &choices) // no list has no text
	for _, choice := range choices {
		raw := choice[member]
		if member != "text" {
			var delta map[string]json.RawMessage
			_ = json.Unmarshal(raw, &delta)
			raw = delta["content"]
		}
		var text string
		_ = json.Unmarshal(raw, &text)
		all += text
	}
	return all
}

// FuzzBody: whatever decode answers, the client gets JSON with the first token's text before decode's, or an error.
func FuzzBody(f *testing.F) {
	f.Fuzz(func(t *testing.T, raw []byte, text string) {
		if !json.Valid([]byte(quote(text))) || strings.Contains(quote(text), "\\ufffd") || !continues(request(t, body.Text, inOne), text) {
			return
		}
		for _, api := range []body.API{body.Chat, body.Text} {
			out, err := continuationOf(t, api, inOne, text).Body(bytes.Clone(raw))
			if err != nil {
				continue
			}
			if !json.Valid(out) {
				t.Fatalf("Body(%q) = %q, want JSON", raw, out)
			}
			if bytes.Equal(out, raw) {
				continue // an error
			}
			member := map[body.API]string{body.Chat: "message", body.Text: "text"}[api]
			if got, want := texts(t, out, member), clean(text)+texts(t, raw, "text"); got != want {
				t.Fatalf("Body(%q) = %q, with text %q, want %q", raw, out, got, want)
			}
		}
	})
}

// clean is text as JSON has it.
func clean(text string) (read string) {
	_ = json.Unmarshal([]byte(quote(text)), &read) // quoted above
	return read
}

// named is the token that prefill's answer names.
func named(answer map[string]any) any {
	return answer["choices"].([]any)[0].(map[string]any)["token_ids"].([]any)[0]
}

// FuzzHandOver: whatever prefill answers, a stream begins with complete events of JSON, and no leg goes on without a token that prefill
// has named.
func FuzzHandOver(f *testing.F) {
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !json.Valid(raw) || len(raw) > 1<<16 {
			return // upstream reads JSON only
		}
		for _, api := range []body.API{body.Chat, body.Text} {
			for _, asked := range []string{streamed, inOne} {
				tr := transfer(t, api, asked, 3)
				h, err := newBench(nil).plan(t, tr).Handover(answered(string(raw)))
				if (h == nil) != (err != nil) {
					t.Fatalf("got %+v, %v of %q", h, err, raw)
				}
				if h == nil {
					continue
				}
				if h.Rewrite != nil {
					asked := exchangetest.Object(t, decodeBody(tr.Request, h.Leg(nil)))
					if prompt := asked["prompt"].([]any); len(prompt) != 4 || prompt[3] != named(exchangetest.Object(t, raw)) {
						t.Fatalf("decode computes %v of %q", prompt, raw)
					}
				}
				for _, data := range events(t, string(h.Head)) {
					if data != "[DONE]" && !json.Valid([]byte(data)) {
						t.Fatalf("got %q, want JSON", data)
					}
				}
			}
		}
	})
}
