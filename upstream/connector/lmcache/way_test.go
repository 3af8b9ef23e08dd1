package lmcache

import (
	"testing"

	"carryover/upstream/body"
)

func TestWay_BehindTheFirstToken(t *testing.T) {
	for _, row := range []struct {
		body, text string
		want       bool
	}{
		{`{}`, "Paris", true},                 // a word
		{`{}`, "é", true},                     // a character of several bytes
		{`{}`, "\n", true},                    // white space
		{`{}`, "\uFFFDx", true},               // U+FFFD before other text
		{`{}`, "x\uFFFD", false},              // the beginning of a character
		{`{}`, "", false},                     // nothing that is shown
		{`{"stop":"\n\n"}`, "x\n", false},     // the beginning of a stop string
		{`{"stop":["q","###"]}`, "##", false}, // a longer beginning of one of several
		{`{"stop":["ab"]}`, "ax", true},       // a beginning that is not at the end
		{`{"stop":["x"]}`, "x", true},         // all of a stop string below min_tokens
		{`{"stop":["Paris is"]}`, "is", true}, // a stop string that begins with more
		{`{"stop":"éa"}`, "é", false},         // a character of a stop string
		{`{"stop":null}`, "x", true},          // no stop strings
		{`{"stop":[]}`, "x", true},            // an empty list of them
	} {
		if got := continues(request(t, body.Text, row.body), row.text); got != row.want {
			t.Errorf("%s behind %q: decode continues: %t, want %t", row.body, row.text, got, row.want)
		}
	}
}

func TestWay_WhatBeginsAtDecode(t *testing.T) {
	const tools = `"tools":[{"type":"function","function":{"name":"f"}}]`
	for begins, members := range map[[2]bool][]string{ // a chat, and a text
		{false, false}: {
			`"temperature":0`,
			`"repetition_penalty":1.2`,
			`"logit_bias":{"5":1}`,
			`"logprobs":true,"top_logprobs":2`,
			`"top_logprobs":null`,
			`"presence_penalty":0`,
			`"presence_penalty":0.0`,
			`"frequency_penalty":null`,
			`"seed":null`,
			`"response_format":{"type":"text"}`,
			`"response_format":null`,
			`"guided_json":null`,
			`"bad_words":[]`,
			`"watermarking":false`,
			`"vllm_xargs":{}`,
			`"echo":false`,
			tools + `,"tool_choice":"none"`,
			`"tools":[]`,
			`"include_reasoning":true`,
			`"logprobs":false`,
			`"user":"u","metadata":{"a":"b"}`,
		},
		{true, true}: {
			`"presence_penalty":0.5`,
			`"frequency_penalty":-1`,
			`"seed":0`,
			`"response_format":{"type":"json_object"}`,
			`"response_format":"json"`,
			`"structured_outputs":{"regex":"a"}`,
			`"guided_regex":"a"`,
			`"bad_words":["x"]`,
			`"repetition_detection":{"max_pattern_size":3}`,
			`"watermarking":true`,
			`"vllm_xargs":{"a":1}`,
			`"thinking_token_budget":0`,
			`"echo":true`,
		},
		{true, false}: {
			tools,
			tools + `,"tool_choice":"auto"`,
			tools + `,"tool_choice":null`,
			`"include_reasoning":false`,
			`"add_generation_prompt":false`,
			`"continue_final_message":true`,
			`"return_prompt_text":true`,
			`"return_tokens_as_token_ids":true`,
			`"logprobs":1`,
			`"top_logprobs":"2"`,
		},
	} {
		for _, member := range members {
			for i, api := range []body.API{body.Chat, body.Text} {
				if got := beginsAtDecode(request(t, api, "{"+member+"}")); got != begins[i] {
					t.Errorf("%s with %s: got %t, want %t", api.Path(), member, got, begins[i])
				}
			}
		}
	}
}
