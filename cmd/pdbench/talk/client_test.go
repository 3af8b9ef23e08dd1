package talk

import (
	"strings"
	"testing"
	"time"
)

func TestRead_WhatCountsAsAnAnswer(t *testing.T) {
	for stream, want := range map[string]string{
		"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\n\n" +
			"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n": "ab",
		"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n": "broke off",
		"data: {\"error\":{\"message\":\"x\"}}\n\ndata: [DONE]\n\n": "error event",
		"data: {\n\n": "event",
	} {
		s := Turn{Began: time.Now()}
		got, err := s.read(strings.NewReader(stream))
		if err != nil {
			got.Content = err.Error()
		}
		if !strings.Contains(got.Content, want) || err == nil && (s.TTFT == 0 || s.Prompt != 5 || s.Answer != 2) {
			t.Errorf("%q: %q, %+v, want %q", stream, got, s, want)
		}
	}
}

func TestRead_CallsOfTools(t *testing.T) {
	stream := `data: {"choices":[{"delta":{"tool_calls":[{"id":"c1","type":"function","index":0,"function":{"name":"read"}}]}}]}` + "\n\n" +
		`data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"path\": "}}]}}]}` + "\n\n" +
		`data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"a\"}"}}]}}]}` + "\n\ndata: [DONE]\n\n"
	turn := Turn{Began: time.Now()}
	answer, err := turn.read(strings.NewReader(stream))
	if err != nil || turn.TTFT == 0 || len(answer.ToolCalls) != 1 || answer.ToolCalls[0].Function.Arguments != `{"path": "a"}` || answer.ToolCalls[0].Function.Name != "read" {
		t.Fatalf("%+v, %v", answer, err)
	}
	result := message{Role: "user"}
	if !result.answers(&answer) || result.Role != "tool" || result.ToolCallID != "c1" {
		t.Errorf("the result is %+v", result)
	}
	if result.answers(&message{Role: "assistant"}) {
		t.Error("a result answers words")
	}
}
