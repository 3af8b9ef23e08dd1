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
