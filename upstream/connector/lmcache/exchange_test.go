package lmcache

import (
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/exchangetest"
)

const folder = "lmcache"

// recordedAttempt is the attempt that the recordings are of.
func recordedAttempt(t *testing.T, api body.API, body string) (*bench, upstream.Transfer) {
	t.Helper()
	b := newBench(func(c *Connector) {
		c.Receivers = map[string]Receiver{"127.0.0.1:8200": {Host: "127.0.0.1", InitPorts: []int{5730}, AllocPorts: []int{5740}}}
	})
	b.NewID = func() string { return "9d9e378a-297e-4bd6-89a1-ccb711c8e8f6" }
	var tokenised struct {
		Tokens []uint32
		Length int `json:"max_model_len"`
	}
	must(t, json.Unmarshal(exchangetest.Read(t, folder, "01-tokenize.json").Response.JSON, &tokenised))
	tr := transfer(t, api, body, 0)
	tr.PromptIDs, tr.ContextLength, tr.Decode.BaseURL = tokenised.Tokens, tokenised.Length, "http://127.0.0.1:8200"
	return b, tr
}

func TestExchanges_LegsAreAskedAsRecorded(t *testing.T) {
	const options = `"max_tokens":8,"temperature":0,"stream":true,"stream_options":{"include_usage":true},"return_token_ids":true}`
	for api, raw := range map[body.API]string{
		body.Chat: `{"model":"tiny","messages":[],` + options,
		body.Text: `{"model":"tiny","prompt":"rendered",` + options,
	} {
		b, tr := recordedAttempt(t, api, raw)
		prefill, decode := exchangetest.Read(t, folder, "02-prefill.json"), exchangetest.Read(t, folder, "04-decode-stream.json")
		plan := b.plan(t, tr)
		// The recorded leg has ret_first_tok. It is the one member that is left out on purpose: with it a leg that is cancelled ends prefill.
		// And it has no tag.
		want := exchangetest.Object(t, prefill.Request.Body)
		delete(want["kv_transfer_params"].(map[string]any), "ret_first_tok")
		want["kv_transfer_params"].(map[string]any)["lmcache.tag.attempt"] = b.NewID()
		if got := exchangetest.Object(t, prefillBody(tr.Request, plan.Prefill)); !reflect.DeepEqual(got, want) {
			t.Errorf("prefill is asked %v, want as recorded %s", got, prefill.Request.Body)
		}
		answer := string(prefill.Response.JSON)
		h := handOver(t, plan, answer)
		if h.Cached != 0 || h.Head != nil || !h.Left {
			t.Errorf("got %+v; the recorded token is the beginning of a character and not to be shown", h)
		}
		exchangetest.Same(t, decodeBody(tr.Request, h.Leg(nil)), []byte(raw), "cache_salt")
		h = handOver(t, plan, strings.Replace(answer, `"text": ""`, `"text": "x"`, 1))
		exchangetest.Same(t, decodeBody(tr.Request, h.Leg(nil)), decode.Request.Body, "cache_salt", "kv_transfer_params")
		// The recorded stream, behind a first token with text.
		stream, text := string(h.Head), "x"
		for _, data := range events(t, decode.Response.Text) {
			if data != "[DONE]" {
				data = string(h.Rewrite.Event([]byte(data)))
				text += texts(t, []byte(data), map[body.API]string{body.Chat: "delta", body.Text: "text"}[api])
			}
			stream += "data: " + data + "\n\n"
		}
		const usage = `"prompt_tokens":75,"total_tokens":83,"completion_tokens":8`
		ids := regexp.MustCompile(`"token_ids":\[\d+\]`).FindAllString(stream, -1)
		if text != "xifiwargs186essionusc det" || len(ids) != 8 || ids[0] != `"token_ids":[2003]` || ids[7] != `"token_ids":[1941]` || !strings.Contains(stream, usage) {
			t.Errorf("the client reads %s, want all text and 8 ids", stream)
		}
	}
}

func TestExchanges_LogprobsOfBothLegs(t *testing.T) {
	b, tr := recordedAttempt(t, body.Chat, `{"model":"tiny","messages":[],"max_tokens":3,"temperature":0,"logprobs":true,"top_logprobs":2}`)
	b.NewID = func() string { return "5c1f9c3e" }
	prefill, decode := exchangetest.Read(t, folder, "05-prefill-logprobs.json"), exchangetest.Read(t, folder, "06-decode-logprobs.json")
	plan := b.plan(t, tr)
	exchangetest.Same(t, prefillBody(tr.Request, plan.Prefill), prefill.Request.Body)
	h := handOver(t, plan, string(prefill.Response.JSON))
	exchangetest.Same(t, decodeBody(tr.Request, h.Leg(nil)), decode.Request.Body)
	body, err := h.Rewrite.Body(decode.Response.JSON)
	must(t, err)
	answer := exchangetest.Object(t, body)
	choice := answer["choices"].([]any)[0].(map[string]any)
	const want = `{"content":[
		{"token":"ifi","logprob":-0.25,"bytes":[105,102,105],"top_logprobs":[{"token":"ifi","logprob":-0.25,"bytes":[105,102,105]},{"token":" det","logprob":-1.5,"bytes":[32,100,101,116]}]},
		{"token":"wargs","logprob":-0.5,"bytes":[119,97,114,103,115],"top_logprobs":[{"token":"wargs","logprob":-0.5,"bytes":[119,97,114,103,115]},{"token":"c","logprob":-2.5,"bytes":[99]}]},
		{"token":" é","logprob":-0.75,"bytes":[32,195,169],"top_logprobs":[{"token":" é","logprob":-0.75,"bytes":[32,195,169]},{"token":"\ufffd","logprob":-1.25,"bytes":[239,191,189]}]}]}`
	if !reflect.DeepEqual(choice["logprobs"], any(exchangetest.Object(t, []byte(want)))) {
		t.Errorf("got logprobs %v, want %s", choice["logprobs"], want)
	}
	if got := choice["message"].(map[string]any)["content"]; got != "ifiwargs é" {
		t.Errorf("got %q, want the text of both", got)
	}
}

func TestExchanges_PrefillsTokenEndsTheAnswer(t *testing.T) {
	stops := string(exchangetest.Read(t, folder, "07-prefill-stops.json").Response.JSON)
	for _, api := range []body.API{body.Chat, body.Text} {
		b, tr := recordedAttempt(t, api, `{"max_tokens":8,"stop_token_ids":[2003]}`)
		if h := handOver(t, b.plan(t, tr), stops); !h.Left || h.Head != nil || h.Rewrite != nil || h.Leg(nil).API != api {
			t.Errorf("got %+v, want decode to give the answer", h)
		}
	}
	b, tr := recordedAttempt(t, body.Text, `{}`)
	if h, err := b.plan(t, tr).Handover(answered(string(exchangetest.Read(t, folder, "08-prefill-without-first-token.json").Response.JSON))); h != nil || err == nil {
		t.Errorf("got %+v, %v of an engine that names no token, want an error", h, err)
	}
}

func TestExchanges_UsageOfEachEvent(t *testing.T) {
	b, tr := recordedAttempt(t, body.Chat, `{"max_tokens":3,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`)
	h := handOver(t, b.plan(t, tr), string(exchangetest.Read(t, folder, "05-prefill-logprobs.json").Response.JSON))
	stream := string(h.Head)
	for _, data := range events(t, exchangetest.Read(t, folder, "09-decode-stream-usage.json").Response.Text) {
		if data != "[DONE]" {
			stream += "data: " + string(h.Rewrite.Event([]byte(data))) + "\n\n"
		}
	}
	var got [][3]json.Number
	for _, data := range events(t, stream) {
		u := exchangetest.Object(t, []byte(data))["usage"].(map[string]any)
		got = append(got, [3]json.Number{u["prompt_tokens"].(json.Number), u["total_tokens"].(json.Number), u["completion_tokens"].(json.Number)})
	}
	if want := [][3]json.Number{{"75", "75", "0"}, {"75", "76", "1"}, {"75", "77", "2"}, {"75", "78", "3"}, {"75", "78", "3"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got usage %v, want %v: role, first token, two of decode, the end", got, want)
	}
	if !strings.Contains(stream, `"prompt_tokens_details":{"cached_tokens":75}`) {
		t.Error("what decode says of its cache is lost")
	}
}
