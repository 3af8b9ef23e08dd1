package vllmsim

import (
	"strings"
	"testing"

	"carryover/upstream/vllmsim/wire"
)

// Whole answers are refused with 503, streams by their first event; health and the rest are as ever (measured on 0.33).
func TestPause_RefusesAsMeasured(t *testing.T) {
	i := startInstance(t, nil)
	none := []byte{}
	ask := with(asking("hi"), object{"max_tokens": 4})
	text := object{"model": "sim", "prompt": "hi", "max_tokens": 4, "stream": true}
	const words = `"message":"Generation is paused. Please retry after it resumes."`
	for _, row := range []struct {
		path   string
		body   any
		status int
		want   string
	}{
		{"/pause?mode=abort", none, 200, `{"status":"paused"}`},
		{"/is_paused", nil, 200, `{"is_paused":true}`},
		{"/is_sleeping", nil, 200, `{"is_sleeping":false}`},
		{wire.PathChat, ask, 503, `{"error":{` + words + `,"type":"ServiceUnavailableError","param":null,"code":503}}`},
		{wire.PathChat, with(ask, object{"stream": true}), 200, `data: {"error":{` + words + `,"type":"InternalServerError","param":null,"code":503}}` + "\n\ndata: [DONE]\n\n"},
		{wire.PathCompletions, text, 200, `"ServiceUnavailableError"`},
		{"/health", nil, 200, ""},
		{"/tokenize", text, 200, `"tokens":`},
		{"/resume", none, 200, `{"status":"resumed"}`},
		{"/is_paused", nil, 200, `{"is_paused":false}`},
		{wire.PathChat, ask, 200, `"choices"`},
		{"/sleep?level=1", none, 200, ""},
		{"/is_sleeping", nil, 200, `{"is_sleeping":true}`},
		{"/wake_up", none, 200, ""},
		{wire.PathChat, ask, 200, `"choices"`},
	} {
		if got := do(t, newRequest(t, i, row.path, row.body)); got.status != row.status || !strings.Contains(string(got.raw), row.want) {
			t.Errorf("%s: %d %s, want %d %s", row.path, got.status, got.raw, row.status, row.want)
		}
	}
}
