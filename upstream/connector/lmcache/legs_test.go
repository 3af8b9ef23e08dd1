package lmcache

import (
	"carryover/upstream/exchangetest"
	"fmt"
	"strings"
	"testing"

	"carryover/upstream"
	"carryover/upstream/body"
)

// bodies of legs as the runner makes them.
func prefillBody(r *body.Request, plan upstream.LegPlan) []byte {
	return r.PrefillBody(body.LegEdit{Members: plan.Members}).Bytes()
}

func decodeBody(r *body.Request, plan upstream.LegPlan) []byte {
	return r.DecodeBody(body.LegEdit{Members: plan.Members}).Bytes()
}

func TestLegs_AreTextCompletionsOfIDs(t *testing.T) {
	const rich = `{"model":"m","messages":[{"role":"user","content":"q"}],"tools":[],"tool_choice":"none","functions":[],"function_call":"none","parallel_tool_calls":true,` +
		`"chat_template":"x","chat_template_kwargs":{},"add_generation_prompt":true,"continue_final_message":false,"add_special_tokens":false,"documents":[],` +
		`"reasoning_effort":"low","include_reasoning":true,"media_io_kwargs":{},"mm_processor_kwargs":{},"return_prompt_text":false,"echo":false,"prompt":"not a chat's","suffix":"nor this","prompt_embeds":"nor this",` +
		`"max_completion_tokens":9,"max_tokens":99,"min_tokens":2,"logprobs":true,"top_logprobs":3,"temperature":0.5,"stop":["\n"],"stop_token_ids":[5],"logit_bias":{"5":1},"response_format":{"type":"text"},` +
		`"stream":true,"stream_options":{"include_usage":true},"user":"u","cache_salt":"s","new_member":[1]}`
	const plain = `"model":"m","temperature":0.5,"stop":["\n"],"stop_token_ids":[5],"logit_bias":{"5":1},"response_format":{"type":"text"},"user":"u","new_member":[1]`
	for _, row := range []struct {
		name, body      string
		api             body.API
		prefill, decode string
		text            string // of the first token
		left            bool   // decode gives the whole answer, and computes the prompt
	}{
		{
			name: "a chat", api: body.Chat, body: rich, text: "x",
			prefill: `{` + plain + `,"cache_salt":"s","prompt":[1,2,3],"max_tokens":1,"min_tokens":1,"logprobs":3,"stream":false,"return_token_ids":true}`,
			decode:  `{` + plain + `,"prompt":[1,2,3,77],"max_tokens":8,"min_tokens":1,"logprobs":3,"stream":true,"stream_options":{"include_usage":true},"cache_salt":"id-2","kv_transfer_params":{"lmcache.tag.attempt":"id-1"}}`,
		},
		{
			name: "a text", api: body.Text, body: `{"model":"m","prompt":"q","logprobs":2,"logprob_token_ids":[1],"return_token_ids":true,"min_tokens":1,"n":1}`, text: "x",
			prefill: `{"model":"m","prompt":[1,2,3],"logprobs":2,"logprob_token_ids":[1],"min_tokens":1,"n":1,"max_tokens":1,"stream":false,"return_token_ids":true}`,
			decode:  `{"model":"m","prompt":[1,2,3,77],"logprobs":2,"logprob_token_ids":[1],"return_token_ids":true,"min_tokens":0,"n":1,"max_tokens":15,"cache_salt":"id-2","kv_transfer_params":{"lmcache.tag.attempt":"id-1"}}`,
		},
		{
			name: "a chat without a limit", api: body.Chat, body: `{"model":"m","messages":[],"top_logprobs":null}`, text: "x",
			prefill: `{"model":"m","prompt":[1,2,3],"max_tokens":1,"stream":false,"return_token_ids":true}`,
			decode:  `{"model":"m","prompt":[1,2,3,77],"max_tokens":4092,"cache_salt":"id-2","kv_transfer_params":{"lmcache.tag.attempt":"id-1"}}`,
		},
		{
			name: "a chat whose first token can't be shown", api: body.Chat, body: `{"model":"m","messages":[],"max_tokens":5,"stream":true}`, text: "\uFFFD",
			prefill: `{"model":"m","prompt":[1,2,3],"max_tokens":1,"stream":false,"return_token_ids":true}`,
			decode:  `{"model":"m","messages":[],"max_tokens":5,"stream":true,"cache_salt":"id-2"}`,
			left:    true,
		},
	} {
		b := newBench(nil)
		tr := transfer(t, row.api, row.body, 3)
		plan := b.plan(t, tr)
		if plan.Prefill.API != body.Text {
			t.Errorf("%s: got a prefill leg %+v, want a text completion", row.name, plan.Prefill)
		}
		raw := prefillBody(tr.Request, plan.Prefill)
		exchangetest.Same(t, raw, []byte(row.prefill), "kv_transfer_params")
		if !strings.Contains(string(raw), `"disagg_spec":{"req_id":"id-1","receiver_host":"10.0.0.2","receiver_init_port":[7300],"receiver_alloc_port":[7400]}`) {
			t.Errorf("%s: %s has no complete disagg_spec", row.name, raw)
		}
		h := handOver(t, plan, firstAnswer(row.text, 3))
		if !h.Bound || h.Cached != 3 {
			t.Errorf("%s: got %+v, want what only that decode instance can use, with 3 tokens cached", row.name, h)
		}
		const rescue = `{"model":"m","prompt":[1,2,3,3],"max_tokens":1,"stream":false,"kv_transfer_params":{"lmcache.tag.attempt":"id-1"}}`
		for _, rescues := range []func() []body.Member{h.Rescue, plan.Lost} {
			api, pieces := tr.Request.RescueBody(body.LegEdit{Members: rescues(), CacheSalt: "own"})
			if exchangetest.Same(t, pieces.Bytes(), []byte(rescue), "cache_salt"); api != body.Text {
				t.Errorf("%s: got the rescue at %s, want a text completion", row.name, api.Path())
			}
		}
		leg := h.Leg(nil)
		exchangetest.Same(t, decodeBody(tr.Request, leg), []byte(row.decode))
		if want := map[bool]body.API{true: row.api, false: body.Text}[row.left]; leg.API != want {
			t.Errorf("%s: decode is asked at %s, want %s", row.name, leg.API.Path(), want.Path())
		}
		if h.Left != row.left || (h.Rewrite != nil) == row.left || (h.Head != nil) != (tr.Request.Stream && !row.left) {
			t.Errorf("%s: got head %q, rewriting %t and KV left %t", row.name, h.Head, h.Rewrite != nil, h.Left)
		}
	}
}

// Decode begins, so that of the prompt it takes whole chunks: prefill computes and sends those, and nothing of its token is used.
func TestLegs_WhatBeginsAtDecode(t *testing.T) {
	for _, row := range []struct {
		chunk, ids, want int
	}{{256, 257, 256}, {256, 512, 256}, {256, 513, 512}, {256, 1000, 768}, {64, 129, 128}, {64, 128, 64}} {
		b := newBench(func(c *Connector) { c.ChunkTokens, c.MaxPromptTokens = row.chunk, row.want })
		const raw = `{"model":"m","messages":[],"seed":1,"max_tokens":5,"logprobs":true,"return_token_ids":true,"min_tokens":2,"stream":true}`
		tr := transfer(t, body.Chat, raw, row.ids)
		plan := b.plan(t, tr)
		got := exchangetest.Object(t, prefillBody(tr.Request, plan.Prefill))
		if n := len(got["prompt"].([]any)); n != row.want {
			t.Errorf("%d ids in chunks of %d: prefill computes %d, want %d", row.ids, row.chunk, n, row.want)
		}
		for _, name := range []string{"logprobs", "min_tokens"} {
			if got[name] != nil {
				t.Errorf("prefill is asked for %s, which nobody gets", name)
			}
		}
		for _, answer := range []string{firstAnswer("x", row.want), firstAnswer("", row.want, `"length"`, `"stop"`)} {
			h := handOver(t, plan, answer)
			if h.Head != nil || h.Rewrite != nil || h.Left || !h.Bound {
				t.Errorf("got %+v, want nothing shown and nothing left", h)
			}
			leg := h.Leg(nil)
			if got := string(decodeBody(tr.Request, leg)); leg.API != body.Chat || got != strings.TrimSuffix(raw, "}")+`,"cache_salt":"id-2","kv_transfer_params":{"lmcache.tag.attempt":"id-1"}}` {
				t.Errorf("decode gets %s, want the client's own request with a salt of its own", got)
			}
		}
	}
}

// What tells tenants apart in the engines' caches gives way on decode's legs: one that shares vLLM's prefix cache leaves chunks behind.
func TestLegs_SaltIsTheAttemptsOwn(t *testing.T) {
	const raw = `{"model":"m","prompt":"q","max_tokens":9,"cache_salt":"client"}`
	b := newBench(nil)
	tr := transfer(t, body.Text, raw, 3)
	for _, text := range []string{"x", "\uFFFD"} {
		plan := b.plan(t, tr)
		want := fmt.Sprintf("id-%d", b.ids) // behind that of the attempt
		h := handOver(t, plan, firstAnswer(text, 3))
		edited := body.LegEdit{Members: h.Leg(nil).Members, CacheSalt: "tenant"}
		if got := exchangetest.Object(t, tr.Request.DecodeBody(edited).Bytes())["cache_salt"]; got != want {
			t.Errorf("decode's salt is %v, want %s", got, want)
		}
		edit := body.LegEdit{Members: plan.Prefill.Members, CacheSalt: "tenant"}
		if got := exchangetest.Object(t, tr.Request.PrefillBody(edit).Bytes())["cache_salt"]; got != "tenant" {
			t.Errorf("prefill's salt is %v, want the tenant's", got)
		}
	}
}

// Ids that the client did not ask for are not shown to it.
func TestHandOver_IDsThatNobodyAskedFor(t *testing.T) {
	first := firstAnswer("x", 3, `"prompt_token_ids":null`, `"prompt_token_ids":[1,2,3]`)
	for _, api := range []body.API{body.Chat, body.Text} {
		for _, body := range []string{`{"max_tokens":9,"stream":true}`, `{"max_tokens":9}`} {
			h := handOver(t, newBench(nil).plan(t, transfer(t, api, body, 3)), first)
			seen := string(h.Head)
			if strings.Contains(body, "9}") {
				whole, err := h.Rewrite.Body([]byte(firstAnswer("y", 4, `"token_ids":[77]`, `"token_ids":null`)))
				must(t, err)
				seen = string(whole)
			}
			if seen == "" || strings.Contains(seen, "77") || strings.Contains(seen, "token_ids\":[") {
				t.Errorf("%s of %s: the client sees %q, want an answer without ids", api.Path(), body, seen)
			}
		}
	}
}

func TestHandOver_WhatIsNone(t *testing.T) {
	const ids, params = `"token_ids":[77]`, `"kv_transfer_params":null`
	for _, answer := range []string{
		firstAnswer("x", 3, ids, `"token_ids":null`),                                                  // no ids
		firstAnswer("x", 3, ids, `"token_ids":null`, params, `"kv_transfer_params":{"first_tok":77}`), // no ids but in params
		firstAnswer("x", 3, ids, `"token_ids":77`),                                                    // no list
		firstAnswer("x", 3, ids, `"token_ids":[]`),                                                    // an empty list
		firstAnswer("x", 3, ids, `"token_ids":[77,78]`),                                               // two tokens
		firstAnswer("x", 3, ids, `"token_ids":["77"]`),                                                // a text in the list
		firstAnswer("x", 3, ids, `"token_ids":[-1]`),                                                  // a negative id
		firstAnswer("x", 3, ids, `"token_ids":[4294967296]`),                                          // no id
		firstAnswer("x", 3, `"choices":[`, `"selection":[`),                                           // no choice
		firstAnswer("x", 3, `"text":"x"`, `"text":null`),                                              // no text
		firstAnswer("x", 3, `"text":"x"`, `"text":"\ud83d"`),                                          // half a surrogate pair
		firstAnswer("x", 4),                        // another prompt
		firstAnswer("x", 3, `"length"`, `"abort"`), // an abort
	} {
		for _, stream := range []string{"true", "false"} {
			plan := newBench(nil).plan(t, transfer(t, body.Text, `{"max_tokens":9,"stream":`+stream+`}`, 3))
			if h, err := plan.Handover(answered(answer)); h != nil || err == nil {
				t.Errorf("%s: got %+v, %v, want an error", answer, h, err)
			}
		}
	}
}
