package upstream

import (
	"carryover/upstream/exchangetest"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"carryover/sse/rawjson"
	"carryover/upstream/body"
)

// Answers that are no answers, and what each is taken for.
func TestClient_PrefillTellsHowALegFailed(t *testing.T) {
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
		"500":      {answers(500, `{"error":{"message":"Internal server error","type":"InternalServerError","param":null,"code":500}}`), Status, 500, "Internal server error", true},
		"400 long": {answers(400, `{"error":{"message":"`+long+`"}}`), Status, 400, long[:maxErrorMessage], false},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/sleep", http.StatusTemporaryRedirect)
		}, Status, 307, "", false},
		"wrong content type": {answers(200, `hello`), Garbage, 0, "", false},
		"closed early":       {hijack(""), Broken, 0, "", true},
		"short body":         {hijack("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"), Broken, 0, "", true},
		"too large":          {hijack("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + strings.Repeat(" ", maxPrefillAnswer+1)), Garbage, 0, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			instance := engine(t, RolePrefill, tc.handler)
			_, err := newTestClient(t, "").Prefill(t.Context(), legTo(instance))
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
			_, err := newTestClient(t, "").Prefill(ctx, legTo(instance))
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
	sent := legTo(instance)
	answer, err := client.send(t.Context(), &sent, nil)
	must(t, err)
	must(t, answer.Detach())
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
	_, err := newTestClient(t, "").Prefill(ctx, legTo(instance))
	if leg := legError(t, err); leg.Status != http.StatusInternalServerError && leg.Kind != Gone { // it may leave before the header
		t.Errorf("got %v, want the status or the end of the context", leg)
	}
	<-ended
}

// readInSteps reads an answer as readAnswer does, with encoding/json: of equal names the last counts.
func readInSteps(l Leg, raw []byte) (answer PrefillAnswer, failed string, ok bool) {
	var all map[string]json.RawMessage
	if !rawjson.Valid(raw) || json.Unmarshal(raw, &all) != nil || all == nil {
		return PrefillAnswer{}, "", false
	}
	if fault := all["error"]; !rawjson.IsNull(fault) {
		return PrefillAnswer{}, ReadFault([]byte(`{"error":`+string(fault)+`}`)).Message + "!", true
	}
	answer.Body, answer.Cached = raw, -1
	answer.ID = AnswerID(all["id"])
	if params := all["kv_transfer_params"]; !rawjson.IsNull(params) {
		answer.Params = params
	}
	ids := all["prompt_token_ids"]
	if l.API == body.Text {
		var choices []json.RawMessage
		var first map[string]json.RawMessage
		if json.Unmarshal(all["choices"], &choices) == nil && len(choices) > 0 {
			_ = json.Unmarshal(choices[0], &first)
		}
		ids = first["prompt_token_ids"]
	}
	if len(ids) > 0 && ids[0] == '[' {
		answer.PromptIDs = ids
	}
	var usage, details map[string]json.RawMessage
	if json.Unmarshal(all["usage"], &usage) == nil {
		answer.PromptTokens, _ = rawjson.Integer(usage["prompt_tokens"])
		answer.PromptTokens = max(0, answer.PromptTokens)
	}
	if json.Unmarshal(usage["prompt_tokens_details"], &details) == nil {
		if n, ok := rawjson.Integer(details["cached_tokens"]); ok && n >= 0 {
			answer.Cached = n
		}
	}
	return answer, "", true
}

// checkAnswer compares both ways to read an answer.
func checkAnswer(t *testing.T, api body.API, body []byte) {
	t.Helper()
	leg := Leg{Instance: &Instance{Name: "p"}, API: api}
	want, failed, valid := readInSteps(leg, body)
	got, err := leg.readAnswer(body)
	var fault *LegError
	switch {
	case !valid:
		if !errors.As(err, &fault) || fault.Kind != Garbage {
			t.Fatalf("%q: got %+v, %v, want garbage", body, got, err)
		}
	case failed != "":
		if !errors.As(err, &fault) || fault.Kind != Status || fault.Status != http.StatusInternalServerError || fault.Message+"!" != failed {
			t.Fatalf("%q: got %+v, %v, want the fault %q", body, got, err, failed)
		}
	case err != nil:
		t.Fatalf("%q: %v", body, err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%q, API %d:\n got %+v\nwant %+v", body, api, got, want)
	}
}

// Each answer is read as both APIs'.
func FuzzReadAnswer(f *testing.F) {
	for _, answer := range append([]string{
		`{}`, ` { } `, `[]`, `null`, `1`, `"x"`, ``, `{`, `{}x`, `{"id":1}`, `{"id":null,"id":"b"}`, `{"id":"\u0061\ud800"}`, `{"id":{"a":[1]}}`, `{"id":true}`,
		`{"kv_transfer_params":{"a":1},"kv_transfer_params":null}`, `{"kv_transfer_params":null,"kv_tran\u0073fer_params":{"a" : 1}}`, `{"kv_transfer_params":[]}`,
		`{"prompt_token_ids":[1,2],"prompt_token_ids":null}`, `{"prompt_token_ids":[1,2],"prompt_token_ids":[3]}`, `{"prompt_token_ids":[-1,1.5,"x",[2]]}`,
		`{"prompt_token_ids":[1,2}`, `{"prompt_token_ids":[01]}`, `{"prompt_token_ids":[1,]}`, `{"prompt_token_ids":"[1]"}`, `{"prompt_token_ids":[ 1 , 2 ]}`,
		`{"choices":[{"prompt_token_ids":[1]},{"prompt_token_ids":[2]}]}`, `{"choices":[{"prompt_token_ids":null,"prompt_token_ids":[1]}]}`,
		`{"choices":[{"prompt_token_ids":[1],"prompt_token_ids":[2]}]}`, `{"choices":[{"prompt_token_ids":[1]}],"choices":[]}`, `{"choices":{"0":{"prompt_token_ids":[1]}}}`,
		`{"choices":[[{"prompt_token_ids":[1]}]]}`, `{"choices":[null,{"prompt_token_ids":[1]}]}`, `{"choices":[{"prompt\u005ftoken_ids":[1]}]}`, `{"choices":[{"a":{"prompt_token_ids":[1]}}]}`,
		`{"choices":[{"prompt_token_ids":[1]}`, `{"choices":[{"prompt_token_ids":[1]},]}`, `{"choices":"x"}`,
		`{"usage":{"prompt_tokens":7},"usage":{}}`, `{"usage":{"prompt_tokens":-7}}`, `{"usage":{"prompt_tokens":"7"}}`, `{"usage":{"prompt_tokens":7.9}}`, `{"usage":[7]}`,
		`{"usage":{"prompt_tokens_details":{"cached_tokens":"5"}}}`, `{"usage":{"prompt_tokens_details":{"cached_tokens":-5}}}`, `{"usage":{"prompt_tokens_details":{"cached_tokens":0}}}`,
		`{"usage":{"prompt_tokens_details":null}}`, `{"choices":[{},{"prompt_token_ids":[1]}]}`, `{"prompt_token_ids":[1],"choices":[]}`, `{"choices":null}`, `{"usage":null}`,
		`{"usage":{"prompt_tokens":1,"prompt_tokens":2}}`, `{"usage":{"prompt_tokens":1e30}}`,
		`{"error":null}`, `{"error":{"message":"m"}}`, `{"error":"m","error":null}`, `{"error":false}`, `{"error":{"message":"m"},"id":`,
		`{"a":` + strings.Repeat("[", 63) + strings.Repeat("]", 63) + `}`, `{"a":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`,
		`{"choices":` + strings.Repeat("[", 63) + strings.Repeat("]", 63) + `}`, `{"choices":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`,
		`{"choices":[{"a":` + strings.Repeat("[", 61) + strings.Repeat("]", 61) + `}]}`, `{"choices":[{"a":` + strings.Repeat("[", 62) + strings.Repeat("]", 62) + `}]}`,
		"{\"id\":\"\xff\"}",
	}, string(exchangetest.Read(f, "vllm-0.32", "01-prefill-turn1.json").Response.JSON), string(exchangetest.Read(f, "vllm-0.32", "11-completions-prefill.json").Response.JSON)) {
		f.Add(false, []byte(answer))
		f.Add(true, []byte(answer))
	}
	f.Fuzz(func(t *testing.T, text bool, raw []byte) {
		api := body.Chat
		if text {
			api = body.Text
		}
		checkAnswer(t, api, raw)
	})
}

func TestAnswerID_IsNoneOnlyIfAbsent(t *testing.T) {
	for raw, want := range map[string]string{"": "", `null`: "", `"a\u002d1"`: "a-1", `7`: "7", `"\ud800"`: `"\ud800"`} {
		var id []byte
		if raw != "" {
			id = []byte(raw)
		}
		if got := AnswerID(id); got != want {
			t.Errorf("the id %s is %q, want %q", raw, got, want)
		}
	}
}

// What else makes no ids, tokens and params is among the seeds of FuzzReadAnswer.
func TestReadAnswer_OfEachAPI(t *testing.T) {
	for _, row := range []struct {
		api                 body.API
		answer              string
		tokens, cached, ids int
		params              string
	}{
		{body.Messages, `{"usage":{"input_tokens":3,"cache_read_input_tokens":4,"cache_creation_input_tokens":5},"kv_transfer_params":{"a":1}}`, 12, 4, 0, `{"a":1}`},
		{body.Messages, `{"usage":{"input_tokens":3}}`, 3, -1, 0, ""},
		{body.Responses, `{"usage":{"input_tokens":3,"input_tokens_details":{"cached_tokens":2}},"input_messages":[{"type":"raw_message_tokens","tokens":[1,2,3]}]}`, 3, 2, 3, ""},
		{body.Responses, `{"input_messages":[{"type":"raw_message_tokens","tokens":[1]},{"type":"raw_message_tokens","tokens":[2]}]}`, 0, -1, 0, ""},
		{body.Responses, `{"input_messages":[{"type":"harmony","tokens":[1]}]}`, 0, -1, 0, ""},
	} {
		got, err := Leg{Instance: &Instance{}, API: row.api}.readAnswer([]byte(row.answer))
		ids, _ := rawjson.ParseIDs(got.PromptIDs)
		if err != nil || got.PromptTokens != row.tokens || got.Cached != row.cached || len(ids) != row.ids || string(got.Params) != row.params {
			t.Errorf("API %d, %.300s: got %+v, %v, want %+v", row.api, row.answer, got, err, row)
		}
	}
}
