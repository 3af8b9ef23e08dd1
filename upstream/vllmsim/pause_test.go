package vllmsim

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"carryover/upstream/vllmsim/wire"
)

// Whole answers are refused with 503, streams by their first event; health and the rest are as ever (measured on 0.33).
func TestPause_RefusesAsMeasured(t *testing.T) {
	i, err := Start(DefaultConfig())
	must(t, err)
	defer func() {
		must(t, i.Close())
	}()
	ask := func(method, path, body string) (status int, answer string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, i.URL()+path, strings.NewReader(body))
		must(t, err)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		must(t, err)
		defer resp.Body.Close()
		var b strings.Builder
		if _, err := io.Copy(&b, resp.Body); err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, b.String()
	}
	defer http.DefaultClient.CloseIdleConnections()
	const chat, text = `{"model":"sim","messages":[{"role":"user","content":"hi"}],"max_tokens":4`, `{"model":"sim","prompt":"hi","max_tokens":4`
	words := `"message":"Generation is paused. Please retry after it resumes."`
	for _, row := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "/pause?mode=abort", "", 200, `{"status":"paused"}`},
		{"GET", "/is_paused", "", 200, `{"is_paused":true}`},
		{"GET", "/is_sleeping", "", 200, `{"is_sleeping":false}`},
		{"POST", wire.PathChat, chat + "}", 503, `{"error":{` + words + `,"type":"ServiceUnavailableError","param":null,"code":503}}`},
		{"POST", wire.PathChat, chat + `,"stream":true}`, 200, `data: {"error":{` + words + `,"type":"InternalServerError","param":null,"code":503}}` + "\n\ndata: [DONE]\n\n"},
		{"POST", wire.PathCompletions, text + `,"stream":true}`, 200, `"ServiceUnavailableError"`},
		{"GET", "/health", "", 200, ""},
		{"POST", "/tokenize", `{"model":"sim","prompt":"hi"}`, 200, `"tokens":`},
		{"POST", "/resume", "", 200, `{"status":"resumed"}`},
		{"GET", "/is_paused", "", 200, `{"is_paused":false}`},
		{"POST", wire.PathChat, chat + "}", 200, `"choices"`},
		{"POST", "/sleep?level=1", "", 200, ""},
		{"GET", "/is_sleeping", "", 200, `{"is_sleeping":true}`},
		{"POST", "/wake_up", "", 200, ""},
		{"POST", wire.PathChat, chat + "}", 200, `"choices"`},
	} {
		status, answer := ask(row.method, row.path, row.body)
		if status != row.status || !strings.Contains(answer, row.want) {
			t.Errorf("%s %s: %d %s, want %d %s", row.method, row.path, status, answer, row.status, row.want)
		}
	}
}
