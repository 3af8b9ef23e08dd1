package body

import "testing"

// What stock clients send of text is plain, each member of an answer that is sent back included.
func TestPlain_WhatClientsSendOfText(t *testing.T) {
	for api, bodies := range map[API][]string{
		Chat: {
			`{"messages":[{"role":"assistant","content":"a","refusal":null,"annotations":null,"audio":null,"function_call":null,"tool_calls":[],"reasoning":"r","parsed":{"a":1},"unknown":null},{"role":"user","content":"data:image/png;base64,AAAA \"url\""}],"unknown":1}`,
			`{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1","index":0,"type":"function","function":{"name":"f","arguments":"{\"image_url\":\"https://x.example\"}"}}]},{"role":"tool","tool_call_id":"1","name":"f","content":"x"}]}`,
			`{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{"url":"https://x.example"},"parsed_arguments":{"url":"x"}}}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},"b",{"text":"c"},{"type":"thinking","thinking":"t","closed":true},{"type":"refusal","refusal":"no"},{"type":"tool_reference","name":"f"}]}]}`,
			`{"messages":[{"role":"developer","content":"a","tools":[{"type":"function"}]},{"role":"assistant","content":"b","prefix":true,"partial":true,"reasoning_content":"r"}],"mm_payload":null}`,
		},
		Text: {`{"prompt":"a"}`},
		Messages: {
			claudeBody("1"),
			`{"system":"s","messages":[{"role":"user","content":"x"},{"id":"m","type":"message","role":"assistant","model":"m","stop_reason":"end_turn","stop_sequence":null,"usage":{},"content":[{"type":"text","text":"a","citations":null,"parsed_output":{}},{"type":"redacted_thinking","data":"x"}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","is_error":false,"content":[{"type":"tool_reference","tool_name":"f"}]}]}]}`,
		},
		Responses: {
			codexBody, `{"input":"x"}`,
			`{"instructions":null,"input":[{"role":"user","content":"x"},{"type":"reasoning","id":"r","summary":[{"type":"summary_text","text":"s"}],"encrypted_content":"x","content":null,"status":null},
{"type":"message","id":"m","role":"assistant","status":"completed","content":[{"type":"output_text","text":"a","annotations":[],"logprobs":null,"parsed":null}]},{"type":"function_call","call_id":"c","name":"f","arguments":"{}","parsed_arguments":{}},{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"x"}]}]}`,
		},
	} {
		for _, body := range bodies {
			if !mustParse(t, api, body).Prompt().Plain() {
				t.Errorf("API %d: not plain: %s", api, body)
			}
		}
	}
}

func TestPlain_WhatIDsMayNotSayAllOf(t *testing.T) {
	for api, list := range map[API]struct {
		start, end string
		inner      []string
	}{
		Chat: {`{"messages":[{"role":"user",`, `}]}`, []string{
			`"reasoning":{"type":"prompt_embeds","data":"A"}`, `"reasoning_content":{"type":"prompt_embeds","data":"A"}`, `"reasoning":["r"]`,
			`"reasoning":{},"reasoning":"r"`, `"audio":{"id":"a"}`, `"from_the_future":1`, `"content":7`, `"content":{"type":"text"}`, `"content":[7]`,
			`"content":[{"type":"image_url","image_url":{"url":"data:,"}}]`, `"content":[{"image_ur\u006c":"data:,"}]`, `"content":[{"type":"text","text":"a"},{"type":"file"}]`,
			`"content":[{"type":"text","text":"a","image_url":null}]`, `"content":[{"type":null,"text":"x"}]`, `"content":[{"type":"smell"}]`,
			`"content":[{"type":"text","text":{"type":"prompt_embeds"}}]`, `"content":[{"type":"text","text":"a","data":"A"}]`, `"content":[{"type":"text","text":"a","uuid":"u"}]`,
			`"content":[{"type":"text","text":"x","type":"image_url"}]`, `"content":[{"type":"image_url"}],"content":"x"`,
			`"tool_calls":{}`, `"tool_calls":[{"function":{"arguments":[]}}]`, `"tool_calls":[{"image":"x"}]`,
		}},
		Messages: {`{"messages":[{"role":"user",`, `}]}`, []string{
			`"content":[{"type":"image","source":{"type":"base64","data":"x"}}]`, `"content":[{"type":"document"}]`, `"content":["x"]`, `"content":[{"text":"x"}]`,
			`"content":[{"type":"tool_result","content":[{"type":"image"}]}]`, `"content":[{"type":"text","text":"x","type":"image"}]`,
			`"content":[{"type":"text","text":"x","source":{}}]`, `"content":[{"type":"thinking","thinking":{}}]`, `"reasoning":"x"`,
		}},
		Responses: {`{"input":[{`, `}]}`, []string{
			`"role":"user","content":[{"type":"input_image","image_url":"x"}]`, `"type":"item_reference","id":"x"`, `"role":"assistant","reasoning":{}`,
			`"type":"function_call_output","output":[{"type":"input_image"}]`, `"type":"reasoning","summary":"x"`,
		}},
	} {
		for _, inner := range list.inner {
			if body := list.start + inner + list.end; mustParse(t, api, body).Prompt().Plain() {
				t.Errorf("API %d: plain: %s", api, body)
			}
		}
	}
	for api, body := range map[API]string{
		Chat: `{"messages":"a"}`, Messages: `{"system":[{"type":"image"}],"messages":[]}`, Responses: `{"input":7}`,
	} {
		if mustParse(t, api, body).Prompt().Plain() {
			t.Errorf("API %d: plain: %s", api, body)
		}
	}
}
