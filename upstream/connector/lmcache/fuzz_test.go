package lmcache

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"carryover/upstream"
)

// continuationOf is the rewriting of an answer that begins with this text.
func continuationOf(t *testing.T, api upstream.API, body, text string) upstream.Rewriter {
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
		for _, api := range []upstream.API{upstream.Chat, upstream.Text} {
			out := continuationOf(t, api, streamed, "x").Event(bytes.Clone(data))
			if !json.Valid(out) || bytes.ContainsAny(out, "\r\n") {
				t.Fatalf("Event(%q) = %q, want one line of JSON", data, out)
			}
			if bytes.Contains(out, []byte(unreadable)) {
				continue
			}
			in, got := texts(t, data, "text"), texts(t, out, map[upstream.API]string{upstream.Chat: "delta", upstream.Text: "text"}[api])
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
	f.Fuzz(func(t *testing.T, body []byte, text string) {
		if !json.Valid([]byte(quote(text))) || strings.Contains(quote(text), "\\ufffd") || wayOn(request(t, upstream.Text, inOne), budget{most: 9}, text, false) != onward {
			return
		}
		for _, api := range []upstream.API{upstream.Chat, upstream.Text} {
			out, err := continuationOf(t, api, inOne, text).Body(bytes.Clone(body))
			if err != nil {
				continue
			}
			if !json.Valid(out) {
				t.Fatalf("Body(%q) = %q, want JSON", body, out)
			}
			if bytes.Equal(out, body) {
				continue // an error
			}
			member := map[upstream.API]string{upstream.Chat: "message", upstream.Text: "text"}[api]
			if got, want := texts(t, out, member), clean(text)+texts(t, body, "text"); got != want {
				t.Fatalf("Body(%q) = %q, with text %q, want %q", body, out, got, want)
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
	choice := answer["choices"].([]any)[0].(map[string]any)
	if ids, ok := choice["token_ids"].([]any); ok {
		return ids[0]
	}
	return answer["kv_transfer_params"].(map[string]any)["first_tok"]
}

// FuzzHandOver: whatever prefill answers, a stream begins with complete events of JSON, a whole answer is JSON, and no leg goes
// without a token that prefill has named.
func FuzzHandOver(f *testing.F) {
	f.Fuzz(func(t *testing.T, body []byte) {
		if !json.Valid(body) || len(body) > 1<<16 {
			return // upstream reads JSON only
		}
		for _, api := range []upstream.API{upstream.Chat, upstream.Text} {
			for _, asked := range []string{streamed, inOne, `{"max_tokens":1,"stream":true}`, `{"max_tokens":1}`} {
				tr := transfer(t, api, asked, 3)
				h, err := newBench(nil).plan(t, tr).Handover(answered(string(body)))
				if (h == nil) != (err != nil) {
					t.Fatalf("got %+v, %v of %q", h, err, body)
				}
				if h == nil {
					continue
				}
				if leg := h.Leg; h.Take != nil || h.Rewrite != nil {
					if h.Take != nil {
						leg = h.Take
					}
					wantBody := decoded(t, decodeBody(tr.Request, leg(nil)))
					if prompt := wantBody["prompt"].([]any); len(prompt) != 4 || prompt[3] != named(decoded(t, body)) {
						t.Fatalf("decode computes %v of %q", prompt, body)
					}
				}
				stream := string(h.Head)
				if tr.Request.Stream() {
					stream += string(h.Whole)
				} else if h.Whole != nil && !json.Valid(h.Whole) {
					t.Fatalf("got %q, want JSON", h.Whole)
				}
				for _, data := range events(t, stream) {
					if data != "[DONE]" && !json.Valid([]byte(data)) {
						t.Fatalf("got %q, want JSON", data)
					}
				}
			}
		}
	})
}
