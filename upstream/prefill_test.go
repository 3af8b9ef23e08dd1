package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"carryover/sse/rawjson"
	"carryover/upstream/body"
)

// Answers that are no answers, and what each is taken for.
func TestClient_PrefillTellsHowALegFailed(t *testing.T) {
	status := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		}
	}
	hijack := func(raw string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			_, _ = io.WriteString(conn, raw)
			_ = conn.Close()
		}
	}
	long := strings.Repeat("m", maxErrorMessage+10)
	for name, tc := range map[string]struct {
		handler   http.HandlerFunc
		kind      Kind
		status    int
		message   string
		retryable bool
	}{
		"500":          {status(500, `{"error":{"message":"Internal server error","type":"InternalServerError","param":null,"code":500}}`), Status, 500, "Internal server error", true},
		"503 flat":     {status(503, `{"object":"error","message":"busy","type":"x"}`), Status, 503, "busy", true},
		"401 string":   {status(401, `{"error":"Unauthorized"}`), Status, 401, "Unauthorized", false},
		"404 not JSON": {status(404, `nope`), Status, 404, "", false},
		"400 long":     {status(400, `{"error":{"message":"`+long+`"}}`), Status, 400, long[:maxErrorMessage], false},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/sleep", http.StatusTemporaryRedirect)
		}, Status, 307, "", false},
		"error in a 200":     {answerJSON(`{"error":{"message":"inside"}}`), Status, 500, "inside", true},
		"garbage":            {answerJSON(`{"kv_transfer_params":`), Garbage, 0, "", false},
		"not an object":      {answerJSON(`[1]`), Garbage, 0, "", false},
		"wrong content type": {status(200, `hello`), Garbage, 0, "", false},
		"closed early":       {hijack(""), Broken, 0, "", true},
		"short body":         {hijack("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"), Broken, 0, "", true},
		"too large":          {hijack("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + strings.Repeat(" ", maxPrefillAnswer+1)), Garbage, 0, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			instance := engine(t, RolePrefill, tc.handler)
			_, err := newTestClient(t, "").Prefill(t.Context(), Leg{Instance: instance, Body: rawjson.Pieces{[]byte(`{}`)}})
			leg := legError(t, err)
			if leg.Kind != tc.kind || leg.Status != tc.status || leg.Message != tc.message || leg.Retryable() != tc.retryable || !leg.Sent {
				t.Errorf("got kind %v status %d message %.40q retryable %v sent %v, want %v %d %.40q %v true",
					leg.Kind, leg.Status, leg.Message, leg.Retryable(), leg.Sent, tc.kind, tc.status, tc.message, tc.retryable)
			}
			if strings.Contains(leg.Error(), "%!") || leg.Error() == "" {
				t.Errorf("message %q", leg.Error())
			}
		})
	}
}

func TestClient_LastNonNullParamsOfAPrefillAnswerIgnoreNull(t *testing.T) {
	instance := engine(t, RolePrefill, answerJSON(`{"kv_transfer_params":null,"error":null}`))
	answer, err := newTestClient(t, "").Prefill(t.Context(), Leg{Instance: instance, Body: rawjson.Pieces{[]byte(`{}`)}})
	if err != nil || answer.Params != nil {
		t.Errorf("params %s, error %v, want none", answer.Params, err)
	}
}

func TestClient_PrefillAnswersWithTheIDsItComputed(t *testing.T) {
	for _, row := range []struct {
		name, answer, want string
		api                body.API
	}{
		{"chat, recorded", string(recorded(t, "01-prefill-turn1.json").Response.JSON), "98 ids", body.Chat},
		{"text, recorded", string(recorded(t, "11-completions-prefill.json").Response.JSON), "7 ids", body.Text},
		{"chat, not asked", `{"prompt_token_ids":null}`, "none", body.Chat},
		{"chat, no list", `{"prompt_token_ids":"1"}`, "none", body.Chat},
		{"chat, in the choice", `{"choices":[{"prompt_token_ids":[1]}]}`, "none", body.Chat},
		{"text, not asked", `{"choices":[{"prompt_token_ids":null}]}`, "none", body.Text},
		{"text, second choice", `{"choices":[{},{"prompt_token_ids":[1]}]}`, "none", body.Text},
		{"text, at the top", `{"prompt_token_ids":[1],"choices":[]}`, "none", body.Text},
		{"text, no choices", `{"choices":null}`, "none", body.Text},
	} {
		answer, err := newTestClient(t, "").Prefill(t.Context(), Leg{Instance: engine(t, RolePrefill, answerJSON(row.answer)), API: row.api, Body: rawjson.Pieces{[]byte(`{}`)}})
		got := "none"
		if answer.PromptIDs != nil {
			ids, _ := rawjson.ParseIDs(answer.PromptIDs)
			got = strconv.Itoa(len(ids)) + " ids"
		}
		if err != nil || got != row.want {
			t.Errorf("%s: got %s, error %v, want %s", row.name, got, err, row.want)
		}
	}
}

func TestClient_PrefillTellsHowLongThePromptIs(t *testing.T) {
	for _, row := range []struct {
		answer string
		want   int
	}{
		{string(recorded(t, "01-prefill-turn1.json").Response.JSON), 98},
		{`{"usage":null}`, 0}, {`{"usage":{"prompt_tokens":"7"}}`, 0}, {`{"usage":{"prompt_tokens":-7}}`, 0}, {`{}`, 0},
	} {
		answer, err := newTestClient(t, "").Prefill(t.Context(), Leg{Instance: engine(t, RolePrefill, answerJSON(row.answer)), API: body.Chat, Body: rawjson.Pieces{[]byte(`{}`)}})
		if err != nil || answer.PromptTokens != row.want {
			t.Errorf("%.40s: got %d tokens, error %v, want %d", row.answer, answer.PromptTokens, err, row.want)
		}
	}
}

func TestClient_PrefillTellsWhatWasCachedIfTheEngineDoes(t *testing.T) {
	for _, row := range []struct {
		answer string
		want   int
	}{
		{`{"usage":{"prompt_tokens":7,"prompt_tokens_details":{"cached_tokens":5}}}`, 5}, {`{"usage":{"prompt_tokens_details":{"cached_tokens":0}}}`, 0},
		{`{"usage":{"prompt_tokens_details":null}}`, -1}, {`{"usage":{"prompt_tokens_details":{"cached_tokens":null}}}`, -1}, {`{"usage":{"prompt_tokens_details":{"cached_tokens":"5"}}}`, -1},
		{`{"usage":{"prompt_tokens_details":{"cached_tokens":-5}}}`, -1}, {`{"usage":null}`, -1}, {`{}`, -1},
	} {
		answer, err := newTestClient(t, "").Prefill(t.Context(), Leg{Instance: engine(t, RolePrefill, answerJSON(row.answer)), API: body.Chat, Body: rawjson.Pieces{[]byte(`{}`)}})
		if err != nil || answer.Cached != row.want {
			t.Errorf("%s: got %d tokens, error %v, want %d", row.answer, answer.Cached, err, row.want)
		}
	}
}

func TestClient_TimeLimitsAndTheClientsDepartureAreToldApart(t *testing.T) {
	release, asked := make(chan struct{}), make(chan struct{}, 1) // a token for each leg
	instance := engine(t, RolePrefill, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		asked <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	defer close(release)
	for name, tc := range map[string]struct {
		cause error
		kind  Kind
		again bool
	}{
		"prefill limit":  {ErrPrefillTimeout, Timeout, false},
		"reuse limit":    {ErrReuseTimeout, Timeout, true},
		"ticket's limit": {ErrTicketEnded, Timeout, true},
		"client gone":    {errors.New("gone"), Gone, false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				<-asked
				cancel(tc.cause)
			}()
			_, err := newTestClient(t, "").Prefill(ctx, Leg{Instance: instance, Body: rawjson.Pieces{[]byte(`{}`)}})
			leg := legError(t, err)
			if leg.Kind != tc.kind || !errors.Is(leg, tc.cause) || leg.Retryable() != tc.again {
				t.Errorf("got %v, want kind %v caused by %v", leg, tc.kind, tc.cause)
			}
		})
	}
}

// halfAnswer is an engine that stops in the middle of an answer, and tells when its leg has ended.
func halfAnswer(t *testing.T, status int) (instance *Instance, half, ended chan struct{}) {
	t.Helper()
	half, ended = make(chan struct{}), make(chan struct{})
	instance = engine(t, RolePrefill, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", "100")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"id":`)
		_ = http.NewResponseController(w).Flush()
		close(half)
		<-r.Context().Done()
		close(ended)
	})
	return instance, half, ended
}

func TestPrefill_AnAnswerThatStopsEndsInTime(t *testing.T) {
	instance, _, ended := halfAnswer(t, http.StatusOK)
	client := newTestClient(t, "")
	answer, err := client.send(t.Context(), &Leg{Instance: instance, Body: rawjson.Pieces{[]byte(`{}`)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := answer.Detach(); err != nil {
		t.Fatal(err)
	}
	if body, err := readInTime(answer, 20*time.Millisecond); !errors.Is(err, ErrPrefillTimeout) || body != nil {
		t.Errorf("got %q, %v, want the time limit", body, err)
	}
	_ = answer.Close()
	<-ended
}

// Of an answer that is a failure nothing is worth waiting for longer than for the answer.
func TestPrefill_AFailureThatStopsEndsWithItsContext(t *testing.T) {
	instance, half, ended := halfAnswer(t, http.StatusInternalServerError)
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-half
		cancel(errLeft)
	}()
	_, err := newTestClient(t, "").Prefill(ctx, Leg{Instance: instance, Body: rawjson.Pieces{[]byte(`{}`)}})
	if leg := legError(t, err); leg.Status != http.StatusInternalServerError && leg.Kind != Gone { // it may leave before the header
		t.Errorf("got %v, want the status or the end of the context", leg)
	}
	<-ended
}
