package vllmsim

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"carryover/upstream/vllmsim/recordedtest"
	"carryover/upstream/vllmsim/wire"
)

// messageBody is a request of the Messages API.
func messageBody(members object, messages ...any) object {
	return with(object{"model": "sim", "max_tokens": 64, "messages": messages}, members)
}

// renderedIDs are the ids that /v1/messages/render or chat's says.
func renderedIDs(t *testing.T, i *Instance, path string, body object) []int32 {
	t.Helper()
	got := post(t, i, path+"/render", body)
	got.answers(t, http.StatusOK)
	return ids(got.body["token_ids"])
}

// contentText joins the text blocks of a whole answer.
func contentText(t *testing.T, got answer) string {
	t.Helper()
	got.answers(t, http.StatusOK)
	text := ""
	for _, block := range got.body["content"].([]any) {
		if s, ok := block.(object)["text"].(string); ok {
			text += s
		}
	}
	return text
}

// streamedMessage is what a stream says: its text, and its message_delta.
func streamedMessage(t *testing.T, got answer) (text string, end object) {
	t.Helper()
	for _, e := range recordedtest.Frames(t, string(got.raw)) {
		o := frameObject(t, e)
		if d, ok := o["delta"].(object); ok && d["type"] == "text_delta" {
			text += d["text"].(string)
		}
		if e.Name == "message_delta" {
			end = o
		}
	}
	if end == nil {
		t.Fatalf("no message_delta: %s", got.raw)
	}
	return text, end
}

// prefilledByIDs runs a prefill leg by /v1/completions and returns the params for decode.
func prefilledByIDs(t *testing.T, p *Instance, prompt []int32, ticket object) object {
	t.Helper()
	got := post(t, p, wire.PathCompletions, object{"model": "sim", "prompt": prompt, "max_tokens": 1, "kv_transfer_params": ticket})
	if got.status != http.StatusOK || got.params() == nil {
		t.Fatalf("prefill answered %d: %s", got.status, got.raw)
	}
	return with(got.params(), object{"prompt_token_ids": prompt})
}

func TestMessages_HandOverByForcedIDs(t *testing.T) {
	for _, stream := range []bool{false, true} {
		p, d := startPair(t, func(c *Config) {
			c.Render, c.OutputTokenIDs, c.MessageParams, c.RecomputeThreshold = true, true, true, 1
		})
		read := func(got answer) (string, object) {
			if stream {
				text, end := streamedMessage(t, got)
				params, _ := end["kv_transfer_params"].(object)
				return text, params
			}
			return contentText(t, got), got.params()
		}
		first := messageBody(object{"stream": stream, "system": "Be brief."}, user(longText))
		prompt := renderedIDs(t, p, wire.PathMessages, first)
		text, ticket := read(post(t, d, wire.PathMessages, with(first, object{"kv_transfer_params": prefilledByIDs(t, p, prompt, prefillTemplate())})))
		if s := d.Stats(); s.ComputedTokens > 1 || s.Loads != 1 {
			t.Errorf("stream %v: decode computed %d prompt tokens after %d loads, want the last one at most", stream, s.ComputedTokens, s.Loads)
		}
		said := ids(ticket["output_token_ids"])
		if n, _ := ticket["remote_num_tokens"].(float64); len(said) == 0 || int(n) != len(prompt)+len(said)-1 {
			t.Errorf("stream %v: params %v after %d prompt tokens", stream, ticket, len(prompt))
		}

		second := messageBody(object{"stream": stream, "system": "Be brief."}, user(longText), assistant(text), user("And then?"))
		next := renderedIDs(t, p, wire.PathMessages, second)
		before := p.Stats().ComputedTokens
		again, _ := read(post(t, d, wire.PathMessages, with(second, object{"kv_transfer_params": prefilledByIDs(t, p, next, shortTicket(ticket, slices.Concat(prompt, said), next, 16))})))
		if s := p.Stats(); s.Loads != 1 || s.ComputedTokens-before >= len(next)-len(prompt) {
			t.Errorf("stream %v: prefill computed %d of %d tokens with the ticket", stream, s.ComputedTokens-before, len(next))
		}
		lone, _ := read(post(t, startInstance(t, nil), wire.PathMessages, second))
		if again != lone {
			t.Errorf("stream %v: second turn says %q, a lone request %q", stream, again, lone)
		}
		assertClean(t, p, d)
	}
}

// shortTicket cuts a ticket to the whole blocks that next begins with.
func shortTicket(ticket object, held, next []int32, size int) object {
	n := 0
	for n < len(held) && n < len(next) && held[n] == next[n] {
		n++
	}
	count := n / size
	group := ticket["remote_block_ids"].([]any)[0].([]any)
	return with(ticket, object{"remote_num_tokens": count * size, "remote_block_ids": []any{group[:count]}})
}

func TestForcedIDs_WinOverTheRequest(t *testing.T) {
	i := startInstance(t, func(c *Config) { c.Render = true })
	message := func(members object, text string) object { return messageBody(members, user(text)) }
	for path, body := range map[string]func(members object, text string) object{
		wire.PathMessages:  message,
		wire.PathResponses: func(members object, text string) object { return responseBody(members, text) },
	} {
		prompt := renderedIDs(t, i, path, body(nil, "SAY forwarded"))
		forced := object{"kv_transfer_params": object{"prompt_token_ids": prompt}, "enable_response_messages": true}
		got := string(post(t, i, path, body(forced, "SAY rendered")).raw)
		if !strings.Contains(got, `"text":"forwarded"`) || path == wire.PathResponses && !strings.Contains(got, `"input_messages":[{"message":"",`) {
			t.Errorf("%s: says %s", path, got)
		}
		if got := renderedIDs(t, i, path, body(forced, "SAY rendered")); !slices.Equal(got, prompt) {
			t.Errorf("%s: render ignores forced ids", path)
		}
		count := post(t, i, wire.PathMessagesCount, message(forced, "SAY rendered and a lot more than that"))
		if n, _ := count.body["input_tokens"].(float64); int(n) <= len(prompt) {
			t.Errorf("count_tokens says %s, which knows no params", count.raw)
		}
	}
}
