package lmcache

import (
	"testing"

	"carryover/upstream/body"
)

func TestWay_BehindTheFirstToken(t *testing.T) {
	for _, row := range []struct {
		name, body, text string
		want             bool
	}{
		{"a word", `{}`, "Paris", true},
		{"a character of several bytes", `{}`, "é", true},
		{"white space", `{}`, "\n", true},
		{"U+FFFD before other text", `{}`, "\uFFFDx", true},
		{"the beginning of a character", `{}`, "x\uFFFD", false},
		{"nothing that is shown", `{}`, "", false},
		{"the beginning of a stop string", `{"stop":"\n\n"}`, "x\n", false},
		{"a longer beginning of one of several", `{"stop":["q","###"]}`, "##", false},
		{"a beginning that is not at the end", `{"stop":["ab"]}`, "ax", true},
		{"all of a stop string below min_tokens", `{"stop":["x"]}`, "x", true},
		{"a stop string that begins with more", `{"stop":["Paris is"]}`, "is", true},
		{"a character of a stop string", `{"stop":"éa"}`, "é", false},
		{"no stop strings", `{"stop":null}`, "x", true},
		{"an empty list of them", `{"stop":[]}`, "x", true},
	} {
		if got := continues(request(t, body.Text, row.body), row.text); got != row.want {
			t.Errorf("%s: decode continues: %t, want %t", row.name, got, row.want)
		}
	}
}

func TestWay_WhatBeginsAtDecode(t *testing.T) {
	const tools = `"tools":[{"type":"function","function":{"name":"f"}}]`
	for _, row := range []struct {
		member     string
		chat, text bool
	}{
		{`"temperature":0`, false, false},
		{`"repetition_penalty":1.2`, false, false},
		{`"logit_bias":{"5":1}`, false, false},
		{`"logprobs":true,"top_logprobs":2`, false, false},
		{`"top_logprobs":null`, false, false},
		{`"presence_penalty":0.5`, true, true},
		{`"presence_penalty":0`, false, false},
		{`"presence_penalty":0.0`, false, false},
		{`"frequency_penalty":-1`, true, true},
		{`"frequency_penalty":null`, false, false},
		{`"seed":0`, true, true},
		{`"seed":null`, false, false},
		{`"response_format":{"type":"json_object"}`, true, true},
		{`"response_format":{"type":"text"}`, false, false},
		{`"response_format":"json"`, true, true},
		{`"response_format":null`, false, false},
		{`"structured_outputs":{"regex":"a"}`, true, true},
		{`"guided_regex":"a"`, true, true},
		{`"guided_json":null`, false, false},
		{`"bad_words":["x"]`, true, true},
		{`"bad_words":[]`, false, false},
		{`"repetition_detection":{"max_pattern_size":3}`, true, true},
		{`"watermarking":true`, true, true},
		{`"watermarking":false`, false, false},
		{`"vllm_xargs":{"a":1}`, true, true},
		{`"vllm_xargs":{}`, false, false},
		{`"thinking_token_budget":0`, true, true},
		{`"echo":true`, true, true},
		{`"echo":false`, false, false},
		{tools, true, false},
		{tools + `,"tool_choice":"auto"`, true, false},
		{tools + `,"tool_choice":null`, true, false},
		{tools + `,"tool_choice":"none"`, false, false},
		{`"tools":[]`, false, false},
		{`"include_reasoning":false`, true, false},
		{`"include_reasoning":true`, false, false},
		{`"add_generation_prompt":false`, true, false},
		{`"continue_final_message":true`, true, false},
		{`"return_prompt_text":true`, true, false},
		{`"return_tokens_as_token_ids":true`, true, false},
		{`"logprobs":1`, true, false},
		{`"logprobs":false`, false, false},
		{`"top_logprobs":"2"`, true, false},
		{`"user":"u","metadata":{"a":"b"}`, false, false},
	} {
		raw := "{" + row.member + "}"
		if got := beginsAtDecode(request(t, body.Chat, raw)); got != row.chat {
			t.Errorf("chat with %s: got %t, want %t", row.member, got, row.chat)
		}
		if got := beginsAtDecode(request(t, body.Text, raw)); got != row.text {
			t.Errorf("text with %s: got %t, want %t", row.member, got, row.text)
		}
	}
}
