package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if engine := os.Getenv(readerVariable); engine != "" {
		if err := readAnswer(engine); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func newTestClient(t *testing.T, key string) *Client {
	t.Helper()
	c := NewClient(ClientConfig{DialTimeout: 2 * time.Second, Key: key})
	t.Cleanup(c.Close)
	return c
}

// engine starts an HTTP server as an instance of a role.
func engine(t *testing.T, role Role, handler http.HandlerFunc) *Instance {
	t.Helper()
	srv := httptest.NewServer(handler)
	t.Cleanup(srv.Close)
	instance, err := NewInstance(role, "engine", srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	return &instance
}

func answerJSON(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, body)
	}
}

func legError(t *testing.T, err error) *LegError {
	t.Helper()
	var leg *LegError
	if !errors.As(err, &leg) {
		t.Fatalf("error is %T (%v), want *LegError", err, err)
	}
	return leg
}

func TestClient_SendsOnlyTheAllowedHeadersToConstantPaths(t *testing.T) {
	var got *http.Request
	var body []byte
	instance := engine(t, RolePrefill, func(w http.ResponseWriter, r *http.Request) {
		got = r.Clone(context.Background())
		body, _ = io.ReadAll(r.Body)
		answerJSON(`{"kv_transfer_params":{"a":1},"usage":{"prompt_tokens":3}}`)(w, r)
	})
	for _, api := range []API{Chat, Text} {
		answer, err := newTestClient(t, "engine-key").Prefill(t.Context(), Leg{Instance: instance, API: api, Body: []byte(`{"x":1}`), RequestID: "r-1"})
		if err != nil {
			t.Fatal(err)
		}
		if string(answer.Params) != `{"a":1}` || string(answer.Usage) != `{"prompt_tokens":3}` || string(body) != `{"x":1}` {
			t.Errorf("answer %s %s to body %s", answer.Params, answer.Usage, body)
		}
		if got.URL.RequestURI() != api.Path() || got.ContentLength != 7 || len(got.TransferEncoding) != 0 {
			t.Errorf("request to %s, length %d, encoding %v", got.URL, got.ContentLength, got.TransferEncoding)
		}
		allowed := []string{"Accept-Encoding", "Authorization", "Content-Length", "Content-Type", "User-Agent", "X-Request-Id"}
		for name, values := range got.Header {
			if !slices.Contains(allowed, name) || len(values) != 1 {
				t.Errorf("header %s: %v reached the engine", name, values)
			}
		}
		if got.Header.Get("Authorization") != "Bearer engine-key" || got.Header.Get("Accept-Encoding") != "identity" || got.Header.Get("X-Request-Id") != "r-1" {
			t.Errorf("headers %v", got.Header)
		}
	}
}

func TestClient_ALegsOwnAuthorizationReplacesTheKey(t *testing.T) {
	got := ""
	instance := engine(t, RolePrefill, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("Authorization")
		answerJSON(`{}`)(w, r)
	})
	_, err := newTestClient(t, "engine-key").Prefill(t.Context(), Leg{Instance: instance, Body: []byte(`{}`), Authorization: "Bearer client"})
	if err != nil || got != "Bearer client" {
		t.Errorf("authorization %q, error %v", got, err)
	}
}

func TestClient_RefusedConnectionSentNothing(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	instance, _ := NewInstance(RoleDecode, "", "http://"+listener.Addr().String())
	_ = listener.Close()
	_, err = newTestClient(t, "").Decode(t.Context(), Leg{Instance: &instance, Body: []byte(`{}`)})
	if leg := legError(t, err); leg.Kind != Dial || leg.Sent || !leg.Retryable() {
		t.Errorf("error %+v, want a retryable dial failure with nothing sent", leg)
	}
}

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
			_, err := newTestClient(t, "").Prefill(t.Context(), Leg{Instance: instance, Body: []byte(`{}`)})
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
	answer, err := newTestClient(t, "").Prefill(t.Context(), Leg{Instance: instance, Body: []byte(`{}`)})
	if err != nil || answer.Params != nil {
		t.Errorf("params %s, error %v, want none", answer.Params, err)
	}
}

func TestClient_PrefillAnswersWithTheIDsItComputed(t *testing.T) {
	for _, row := range []struct {
		name, answer, want string
		api                API
	}{
		{"chat, recorded", string(recorded(t, "01-prefill-turn1.json").Response.JSON), "98 ids", Chat},
		{"text, recorded", string(recorded(t, "11-completions-prefill.json").Response.JSON), "7 ids", Text},
		{"chat, not asked", `{"prompt_token_ids":null}`, "none", Chat},
		{"chat, no list", `{"prompt_token_ids":"1"}`, "none", Chat},
		{"chat, in the choice", `{"choices":[{"prompt_token_ids":[1]}]}`, "none", Chat},
		{"text, not asked", `{"choices":[{"prompt_token_ids":null}]}`, "none", Text},
		{"text, second choice", `{"choices":[{},{"prompt_token_ids":[1]}]}`, "none", Text},
		{"text, at the top", `{"prompt_token_ids":[1],"choices":[]}`, "none", Text},
		{"text, no choices", `{"choices":null}`, "none", Text},
	} {
		answer, err := newTestClient(t, "").Prefill(t.Context(), Leg{Instance: engine(t, RolePrefill, answerJSON(row.answer)), API: row.api, Body: []byte(`{}`)})
		got := "none"
		if answer.PromptIDs != nil {
			ids, _ := ParseIDs(answer.PromptIDs)
			got = strconv.Itoa(len(ids)) + " ids"
		}
		if err != nil || got != row.want {
			t.Errorf("%s: got %s, error %v, want %s", row.name, got, err, row.want)
		}
	}
}

func TestClient_TimeLimitsAndTheClientsDepartureAreToldApart(t *testing.T) {
	release := make(chan struct{})
	instance := engine(t, RolePrefill, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
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
			time.AfterFunc(20*time.Millisecond, func() { cancel(tc.cause) })
			_, err := newTestClient(t, "").Prefill(ctx, Leg{Instance: instance, Body: []byte(`{}`)})
			leg := legError(t, err)
			if leg.Kind != tc.kind || !errors.Is(leg, tc.cause) || leg.Retryable() != tc.again {
				t.Errorf("got %v, want kind %v caused by %v", leg, tc.kind, tc.cause)
			}
		})
	}
}

// A connection that died while it was idle: net/http must not repeat the request
// by itself once it may have been sent, and the leg must say that it may have.
func TestClient_IsNeverRepeatedByTheTransport(t *testing.T) {
	var calls atomic.Int32
	instance := engine(t, RoleDecode, func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 {
			answerJSON(`{}`)(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		conn, _, _ := http.NewResponseController(w).Hijack()
		_ = conn.Close()
	})
	client := newTestClient(t, "")
	leg := Leg{Instance: instance, Body: []byte(`{}`)}
	resp, err := client.Decode(t.Context(), leg)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	_, err = client.Decode(t.Context(), leg)
	if e := legError(t, err); e.Kind != Broken || !e.Sent || calls.Load() != 2 {
		t.Errorf("second leg: %v after %d calls, want broken after 2", e, calls.Load())
	}
}

func TestLegBody_LetsGoOfItsBytes(t *testing.T) {
	body := &legBody{rest: []byte("abc")}
	var b [2]byte
	if n, err := body.Read(b[:]); n != 2 || err != nil {
		t.Fatalf("Read = %d, %v", n, err)
	}
	if err := body.Close(); err != nil || body.rest != nil {
		t.Errorf("after Close: error %v, rest %q", err, body.rest)
	}
	if n, err := body.Read(b[:]); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("Read after Close = %d, %v, want 0, EOF", n, err)
	}
}
