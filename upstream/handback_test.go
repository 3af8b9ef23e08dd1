package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"carryover/sse"
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
	for name, tc := range map[string]struct {
		handler http.HandlerFunc
		err     error
	}{
		"a whole completion": {answerJSON(`{"choices":[{"prompt_token_ids":[1]}]}`), errNoStream},
		"a break": {func(w http.ResponseWriter, r *http.Request) {
			saysStream(w, r, firstEvent[:20])
			panic(http.ErrAbortHandler)
		}, io.ErrUnexpectedEOF},
		"too much": {says("data: " + strings.Repeat(" ", maxPrefillAnswer)), ErrAnswerTooLarge},
		"too many": {says(strings.Repeat(": ping\n\n", maxPrefillAnswer/8), firstEvent), ErrAnswerTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			answer, err := handBackTo(t.Context(), newTestClient(t, ""), engine(t, RolePrefill, tc.handler))
			leg := legError(t, err)
			if want := map[bool]Kind{true: Broken, false: Garbage}[name == "a break"]; leg.Kind != want || !leg.Sent || !errors.Is(leg.Err, tc.err) || answer.Body != nil {
				t.Errorf("got %v, sent %v, and %d bytes, want error %v", leg, leg.Sent, len(answer.Body), tc.err)
			}
		})
	}
}

func TestClient_HandBackEndsWithItsContext(t *testing.T) {
	for name, tc := range map[string]struct {
		says  http.HandlerFunc
		cause error
		kind  Kind
	}{
		"before headers":  {func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }, ErrPrefillTimeout, Timeout},
		"before an event": {func(w http.ResponseWriter, r *http.Request) { saysStream(w, r, ": ping\n\n") }, ErrTicketEnded, Timeout},
		"in an event":     {func(w http.ResponseWriter, r *http.Request) { saysStream(w, r, firstEvent[:20]) }, errLeft, Gone},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			gone := make(chan struct{})
			client, instance := startServer(t, false, func(w http.ResponseWriter, r *http.Request) {
				tc.says(w, r)
				cancel(tc.cause)
				<-r.Context().Done()
				close(gone)
			})
			_, err := handBackTo(ctx, client, instance)
			if leg := legError(t, err); leg.Kind != tc.kind || !errors.Is(leg, tc.cause) || !leg.Sent {
				t.Errorf("got %v, sent %v, want kind %v caused by %v", leg, leg.Sent, tc.kind, tc.cause)
			}
			<-gone
		})
	}
}

// relayed are the events of a stream as the relay for clients sees them.
func relayed(t *testing.T, stream []byte) (events []string) {
	t.Helper()
	relay := sse.New(io.Discard, nil, sse.Config{MaxEvent: len(stream) + 1, Observe: func(e sse.Event) sse.Verdict {
		if len(e.Data) > 0 {
			events = append(events, string(e.Data))
		}
		return sse.Forward
	}})
	must(t, relay.Run(bytes.NewReader(stream)))
	return events
}

// readEvents reads a stream to its end, with what it has ended with.
func readEvents(r io.Reader, most int) (events []string, err error) {
	reader := newEventReader(r, most)
	for {
		data, err := reader.next()
		if err != nil {
			return events, err
		}
		events = append(events, string(data))
	}
}

func TestEvents_AreReadAsTheyCome(t *testing.T) {
	r, w := io.Pipe()
	defer func() { _ = r.Close() }()
	reader := newEventReader(r, 1<<10)
	for _, event := range []string{"data: a\n\n", "data: a\r\r", "\ndata: a\r\n\r"} { // the LF of a CRLF may come later, or never
		wrote := make(chan error, 1) // the reader does not wait for the writer
		go func() {
			_, err := io.WriteString(w, event)
			wrote <- err
		}()
		if data, err := reader.next(); string(data) != "a" || err != nil {
			t.Fatalf("%q: got %q, %v", event, data, err)
		}
		must(t, <-wrote)
	}
}

func TestEvents_AreBounded(t *testing.T) {
	const stream = ": ping\n\ndata: a\n\ndata: b\n\n"
	for most := range len(stream) + 2 {
		want, wantErr := relayed(t, []byte(stream[:min(most, len(stream))])), ErrAnswerTooLarge
		if most > len(stream) {
			wantErr = io.EOF
		}
		for _, r := range []io.Reader{strings.NewReader(stream), iotest.OneByteReader(strings.NewReader(stream))} {
			if got, err := readEvents(r, most); !slices.Equal(got, want) || !errors.Is(err, wantErr) {
				t.Errorf("at most %d bytes: got %q, %v, want %q, %v", most, got, err, want, wantErr)
			}
		}
	}
}

func TestEvents_EndWithTheirSource(t *testing.T) {
	broken := errors.New("broken")
	if got, err := readEvents(iotest.DataErrReader(io.MultiReader(strings.NewReader("data: a\n\ndata: b"), iotest.ErrReader(broken))), 1<<10); len(got) != 1 || !errors.Is(err, broken) {
		t.Errorf("got %q, %v, want one event and the error", got, err)
	}
	if _, err := readEvents(silent{}, 1<<10); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("got %v of a source that says nothing for ever", err)
	}
}

// silent says nothing, and does not wait either.
type silent struct{}

func (silent) Read([]byte) (int, error) { return 0, nil }

// firstInSteps finds the first choice among events that have been read.
func firstInSteps(l Leg, events []string) (answer PrefillAnswer, failed string, kind Kind) {
	for _, data := range events {
		if data == "[DONE]" {
			return PrefillAnswer{}, "", Garbage
		}
		answer, failed, ok := readInSteps(l, []byte(data))
		switch {
		case !ok:
			return PrefillAnswer{}, "", Garbage
		case failed != "":
			return PrefillAnswer{}, failed, Status
		}
		var all map[string]json.RawMessage
		var choices []json.RawMessage
		if json.Unmarshal([]byte(data), &all) == nil && json.Unmarshal(all["choices"], &choices) == nil && len(choices) > 0 {
			return answer, "", 0
		}
	}
	return PrefillAnswer{}, "", Garbage
}

// FuzzFirstChoice holds the first event of any stream, in reads of any size, to what the relay sees and what is read in steps.
func FuzzFirstChoice(f *testing.F) {
	for _, stream := range []string{
		"", "\n", "data: a\n\n", "data:a\n\ndata: b\n\n", "data: a\r\n\r\ndata: b\r\n\r\n", "data: a\r\rdata: b\r\r", "data: a\n\r\ndata: b\r\n\n", "data: a\r\ndata: b\n\n",
		"data: a\ndata: b\ndata:\ndata:  c\n\n", "data\ndata\n\n", "data\n\n", "data:\n\n", ": ping\n\n:\n\ndata: a\n\n", "event: error\ndata: a\nid: 7\nretry: 1\n\n", "data : a\n\n", "Data: a\n\n",
		"\xef\xbb\xbfdata: a\n\n", "\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", "\ufeff\n\ndata: a\n\n", "\n\xef\xbb\xbfdata: a\n\n", "data: a", "data: a\n", "data: a\n\ndata: b\n", "dataa: x\n\n", "d\n\n", "data: \x00\xff\n\n", firstEvent,
		`data: {"error": {"message": "Internal server error", "type": "InternalServerError", "param": null, "code": 500}}` + "\n\ndata: [DONE]\n\n",
		`data: {"error":{"message":"no","code":400}}` + "\n\n", `data: {"choices":[],"usage":{"prompt_tokens":1}}` + "\n\n", `data: {"choices":{"0":{}}}` + "\n\n",
		"data: [DONE]\n\n" + firstEvent, strings.TrimSpace(firstEvent), "data: x\n\n", "data: [{}]\n\n",
	} {
		f.Add(uint8(0), []byte(stream))
	}
	f.Fuzz(func(t *testing.T, size uint8, stream []byte) {
		events := relayed(t, stream)
		for at := range min(len(stream), 300) { // however it is split
			r := io.MultiReader(bytes.NewReader(stream[:at]), iotest.DataErrReader(bytes.NewReader(stream[at:])))
			if got, err := readEvents(r, len(stream)+1); !slices.Equal(got, events) || !errors.Is(err, io.EOF) {
				t.Fatalf("%q, split at %d: got %q, %v, want %q", stream, at, got, err, events)
			}
		}
		if got, err := readEvents(sized{bytes.NewReader(stream), int(size)}, len(stream)+1); !slices.Equal(got, events) || !errors.Is(err, io.EOF) {
			t.Fatalf("%q: got %q, %v, want %q", stream, got, err, events)
		}
		l := Leg{Instance: &Instance{Name: "p"}, API: body.Text}
		want, failed, kind := firstInSteps(l, events)
		got, err := l.firstChoice(sized{bytes.NewReader(stream), int(size)})
		var fault *LegError
		switch {
		case kind == 0 && err != nil || kind != 0 && (!errors.As(err, &fault) || fault.Kind != kind):
			t.Fatalf("%q: got %+v, %v, want kind %v", stream, got, err, kind)
		case kind == Status && (fault.Status != http.StatusInternalServerError || fault.Message+"!" != failed):
			t.Fatalf("%q: got %+v, want the fault %q", stream, fault, failed)
		case !reflect.DeepEqual(got, want):
			t.Fatalf("%q:\n got %+v\nwant %+v", stream, got, want)
		case kind == 0 && !json.Valid(got.Body):
			t.Fatalf("%q: got %q, which is no JSON", stream, got.Body)
		}
	})
}

// sized reads at most so many bytes at once, and one more.
type sized struct {
	io.Reader
	size int
}

func (s sized) Read(p []byte) (int, error) { return s.Reader.Read(p[:min(s.size+1, len(p))]) }
