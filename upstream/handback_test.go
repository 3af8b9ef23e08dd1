package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"carryover/sse/rawjson"
	"carryover/upstream/body"
)

// firstEvent is what vLLM 0.32 begins the answer to a hand-back with.
const firstEvent = `data: {"id":"cmpl-1","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":" a","logprobs":null,"finish_reason":null,"stop_reason":null,` +
	`"prompt_token_ids":[56,272,1490],"token_ids":[1495]}],"usage":{"prompt_tokens":3,"total_tokens":4,"completion_tokens":1}}` + "\n\n"

// saysStream begins a stream, says each part in a chunk of its own, and goes on like this until its client has gone.
func saysStream(w http.ResponseWriter, r *http.Request, parts ...string) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	flush := http.NewResponseController(w)
	for _, part := range append([]string{""}, parts...) {
		_, _ = io.WriteString(w, part)
		_ = flush.Flush()
	}
}

// handBackTo hands something back to an instance.
func handBackTo(ctx context.Context, client *Client, instance *Instance) (PrefillAnswer, error) {
	return client.HandBack(ctx, Leg{Instance: instance, API: body.Text, Body: rawjson.Pieces{[]byte(`{"prompt":[56,272,1490]}`)}, RequestID: "r"})
}

// checkFirst checks what was read of firstEvent.
func checkFirst(t *testing.T, got PrefillAnswer, err error) {
	t.Helper()
	if err != nil || got.ID != "cmpl-1" || string(got.PromptIDs) != "[56,272,1490]" || got.PromptTokens != 3 || got.Cached != -1 || got.Params != nil {
		t.Errorf("got %+v, %v, want the id echo of cmpl-1 for 3 tokens", got, err)
	}
}

func TestClient_HandBackDropsItsConnectionAtTheFirstEvent(t *testing.T) {
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			from, gone := make(chan string, 2), make(chan struct{}, 2) // of each leg one
			client, instance := startServer(t, secure, func(w http.ResponseWriter, r *http.Request) {
				saysStream(w, r, firstEvent)
				from <- r.RemoteAddr
				<-r.Context().Done() // nothing ends the answer but the client
				gone <- struct{}{}
			})
			var before string
			for range 2 {
				answer, err := handBackTo(t.Context(), client, instance)
				checkFirst(t, answer, err)
				<-gone
				if now := <-from; now == before {
					t.Errorf("the connection of %s has served two legs", now)
				} else {
					before = now
				}
			}
		})
	}
}

// An engine whose events lie there by the thousand is left all the same, and gets nothing more to do.
func TestClient_HandBackReadsNothingBehindTheFirstEvent(t *testing.T) {
	gone := make(chan struct{})
	client, instance := startServer(t, false, func(w http.ResponseWriter, r *http.Request) {
		saysStream(w, r, firstEvent)
		more := strings.Repeat(firstEvent, 1000)
		for {
			if _, err := io.WriteString(w, more); err != nil {
				close(gone)
				return
			}
		}
	})
	answer, err := handBackTo(t.Context(), client, instance)
	checkFirst(t, answer, err)
	<-gone
}

func TestClient_HandBackReadsAnEventInPieces(t *testing.T) {
	instance := engine(t, RolePrefill, func(w http.ResponseWriter, r *http.Request) {
		saysStream(w, r, strings.Split(": ping\r\n\r\ndata:\n\n"+firstEvent, "")...)
		<-r.Context().Done()
	})
	answer, err := handBackTo(t.Context(), newTestClient(t, ""), instance)
	checkFirst(t, answer, err)
}

// What has ended with its first event leaves nothing to drop. The legs that follow are none the worse.
func TestClient_HandBackOfAnAnswerThatIsOver(t *testing.T) {
	instance := engine(t, RolePrefill, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, firstEvent+"data: [DONE]\n\n")
	})
	client := newTestClient(t, "")
	for range 3 {
		answer, err := handBackTo(t.Context(), client, instance)
		checkFirst(t, answer, err)
	}
}

// Answers that hand nothing back, and what each is taken for.
func TestClient_HandBackTellsHowALegFailed(t *testing.T) {
	says := func(parts ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { saysStream(w, r, parts...) }
	}
	breaks := func(w http.ResponseWriter, r *http.Request) {
		saysStream(w, r, firstEvent[:20])
		panic(http.ErrAbortHandler)
	}
	refuses := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error":{"message":"too long","type":"BadRequestError","param":"prompt","code":400}}`)
	}
	const fault = `data: {"error": {"message": "Internal server error", "type": "InternalServerError", "param": null, "code": 500}}` + "\n\n"
	for name, tc := range map[string]struct {
		handler http.HandlerFunc
		kind    Kind
		status  int
		message string
		err     error
	}{
		"a bad ticket":         {says(fault, "data: [DONE]\n\n"), Status, 500, "Internal server error", nil},
		"an error of a 4xx":    {says(`data: {"error":{"message":"no","code":400}}` + "\n\n"), Status, 500, "no", nil},
		"a status":             {refuses, Status, 400, "too long", nil},
		"nothing":              {says(), Garbage, 0, "", errNoChoice},
		"no choice":            {says(`data: {"choices":[],"usage":{"prompt_tokens":1}}` + "\n\n"), Garbage, 0, "", errNoChoice},
		"choices of no list":   {says(`data: {"choices":{"0":{}}}` + "\n\n"), Garbage, 0, "", errNoChoice},
		"an end":               {says("data: [DONE]\n\n", firstEvent), Garbage, 0, "", errNoChoice},
		"an event without end": {says(strings.TrimSpace(firstEvent)), Garbage, 0, "", errNoChoice},
		"no JSON":              {says("data: x\n\n"), Garbage, 0, "", errNoObject},
		"a list":               {says("data: [{}]\n\n"), Garbage, 0, "", errNoObject},
		"a whole completion":   {answerJSON(`{"choices":[{"prompt_token_ids":[1]}]}`), Garbage, 0, "", errNoStream},
		"a break":              {breaks, Broken, 0, "", io.ErrUnexpectedEOF},
		"too much":             {says("data: " + strings.Repeat(" ", maxPrefillAnswer)), Garbage, 0, "", ErrAnswerTooLarge},
		"too many":             {says(strings.Repeat(": ping\n\n", maxPrefillAnswer/8), firstEvent), Garbage, 0, "", ErrAnswerTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			answer, err := handBackTo(t.Context(), newTestClient(t, ""), engine(t, RolePrefill, tc.handler))
			leg := legError(t, err)
			if leg.Kind != tc.kind || leg.Status != tc.status || leg.Message != tc.message || !leg.Sent || !errors.Is(leg.Err, tc.err) || answer.Body != nil {
				t.Errorf("got %v, sent %v, message %q, and %d bytes, want kind %v, status %d, message %q, error %v",
					leg, leg.Sent, leg.Message, len(answer.Body), tc.kind, tc.status, tc.message, tc.err)
			}
		})
	}
}

func TestClient_HandBackEndsWithItsContext(t *testing.T) {
	for name, says := range map[string]func(w http.ResponseWriter, r *http.Request){
		"before headers":  func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) },
		"before an event": func(w http.ResponseWriter, r *http.Request) { saysStream(w, r, ": ping\n\n") },
		"in an event":     func(w http.ResponseWriter, r *http.Request) { saysStream(w, r, firstEvent[:20]) },
	} {
		for cause, kind := range map[error]Kind{ErrPrefillTimeout: Timeout, ErrTicketEnded: Timeout, errLeft: Gone} {
			t.Run(name+", "+kind.String(), func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				gone := make(chan struct{})
				client, instance := startServer(t, false, func(w http.ResponseWriter, r *http.Request) {
					says(w, r)
					cancel(cause)
					<-r.Context().Done()
					close(gone)
				})
				_, err := handBackTo(ctx, client, instance)
				if leg := legError(t, err); leg.Kind != kind || !errors.Is(leg, cause) || !leg.Sent {
					t.Errorf("got %v, sent %v, want kind %v caused by %v", leg, leg.Sent, kind, cause)
				}
				<-gone
			})
		}
	}
	t.Run("before it is sent", func(t *testing.T) {
		instance := engine(t, RolePrefill, func(http.ResponseWriter, *http.Request) { t.Error("the leg was sent") })
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errLeft)
		_, err := handBackTo(ctx, newTestClient(t, ""), instance)
		if leg := legError(t, err); leg.Kind != Gone || leg.Sent || !errors.Is(leg, errLeft) {
			t.Errorf("got %v, sent %v, want the client's cause and nothing sent", leg, leg.Sent)
		}
	})
}

func TestClient_HandBackIsAPrefillLegLikeOthers(t *testing.T) {
	var got *http.Request
	instance := engine(t, RolePrefill, func(w http.ResponseWriter, r *http.Request) {
		got = r.Clone(context.Background())
		saysStream(w, r, firstEvent)
	})
	if _, err := handBackTo(t.Context(), newTestClient(t, "key"), instance); err != nil {
		t.Fatal(err)
	}
	if got.URL.RequestURI() != body.Text.Path() || got.Header.Get("Authorization") != "Bearer key" || got.Header.Get("X-Request-Id") != "r" || got.Header.Get("Accept-Encoding") != "identity" {
		t.Errorf("got %s with %v, want a text completion of ours", got.URL, got.Header)
	}
}
