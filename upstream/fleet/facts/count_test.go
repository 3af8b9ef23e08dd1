package facts

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"carryover/upstream"
	"carryover/upstream/body"
)

// Render says "none" for thinking that is disabled, and the endpoint what the template knows.
func TestRender_ThinkingThatIsDisabledMustHaveItsCount(t *testing.T) {
	counts := func(n int) http.HandlerFunc { return answerJSON(fmt.Sprintf(`{"input_tokens":%d}`, n)) }
	const none = `{"model":"m","max_tokens":8,"thinking":%s,` + oneMessage + `}`
	for _, row := range []struct {
		name, body string
		count      http.HandlerFunc
		comparable bool
		asked      bool
		failed     int
	}{
		{"as many", thoughtless, counts(3), true, true, 0},
		{"more", thoughtless, counts(4), false, true, 0},
		{"fewer", thoughtless, counts(2), false, true, 0},
		{"no endpoint", thoughtless, answers(404, `{"detail":"Not Found"}`), false, true, 0},
		{"an unknown model", thoughtless, answers(404, recordedAgents(t, agentErrors, "unknown-model")), false, true, 404},
		{"overloaded", thoughtless, answers(503, `{}`), false, true, 503},
		{"no count", thoughtless, answerJSON(`{}`), false, true, -1},
		{"a text", thoughtless, answerJSON(`{"input_tokens":"3"}`), false, true, -1},
		{"thinking", fmt.Sprintf(none, `{"type":"enabled","budget_tokens":4}`), counts(9), true, false, 0},
		{"null", fmt.Sprintf(none, `null`), counts(9), true, false, 0},
		{"nothing", messagesBody, counts(9), true, false, 0},
		{"escaped", fmt.Sprintf(none, `{"type":"d\u0069sabled"}`), counts(9), false, true, 0},
		{"said twice", fmt.Sprintf(none, `{"type":"enabled","type":"disabled"}`), counts(9), false, true, 0},
		{"no object", fmt.Sprintf(none, `"disabled"`), counts(9), false, true, 0},
		{"no text", fmt.Sprintf(none, `{"type":1}`), counts(9), false, true, 0},
	} {
		r := newRendering(t, map[string]http.HandlerFunc{"/render": answerJSON(`{"token_ids":[1,2,3]}`), "/count_tokens": row.count})
		req, err := body.ParseRequest(body.Messages, []byte(row.body))
		if err != nil {
			t.Fatalf("%s: %v", row.name, err)
		}
		prompt, err := r.Prompts.Read(t.Context(), req, "")
		var failed *upstream.LegError
		switch {
		case row.comparable && (err != nil || len(prompt.IDs) != 3):
			t.Errorf("%s: got %v, %v", row.name, prompt.IDs, err)
		case row.failed != 0 && (!errors.As(err, &failed) || failed.Status != max(row.failed, 0)):
			t.Errorf("%s: got %v, %v, want a failure with %d", row.name, prompt.IDs, err, row.failed)
		case !row.comparable && row.failed == 0 && !errors.Is(err, ErrNotComparable):
			t.Errorf("%s: got %v, %v, want ErrNotComparable", row.name, prompt.IDs, err)
		}
		if asked := slices.Contains(r.paths(), "/v1/messages/count_tokens"); asked != row.asked || r.Prompts.Renders(body.Messages) != Yes {
			t.Errorf("%s: asked %v, renders %d", row.name, r.paths(), r.Prompts.Renders(body.Messages))
		}
	}
	r := newRendering(t, map[string]http.HandlerFunc{"/render": answerJSON(`{"token_ids":[1]}`)})
	if _, err := r.prompt(t, body.Responses, `{"input":"x","thinking":{"type":"disabled"}}`, ""); err != nil || len(r.paths()) != 1 {
		t.Errorf("Responses, which knows no such member: %v after %v", err, r.paths())
	}
}

// FuzzReadCount compares with encoding/json what is accepted.
func FuzzReadCount(f *testing.F) {
	f.Fuzz(func(t *testing.T, answer []byte) {
		n, err := readCount(answer)
		if err != nil {
			return
		}
		var want struct {
			N *json.Number `json:"input_tokens"`
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(answer, &members); err != nil {
			t.Fatalf("%q is accepted: %v", answer, err)
		}
		if err := json.Unmarshal(members["input_tokens"], &want.N); err != nil || want.N == nil || n < 0 {
			t.Fatalf("%q: got %d, want %v", answer, n, err)
		}
		if exact, err := want.N.Int64(); err == nil && int64(n) != exact {
			t.Fatalf("%q: got %d, want %s", answer, n, *want.N)
		}
	})
}
