package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"carryover/sse/rawjson"
	"carryover/upstream/body"
)

// errLeft is the cause with which clients leave.
var errLeft = errors.New("left")

// gatedEngine is an engine that tells when it has a leg, and answers when it may.
// Event streams of it do not end.
func gatedEngine(t *testing.T, contentType, body string) (instance *Instance, has <-chan struct{}, may chan<- struct{}) {
	t.Helper()
	got, goOn := make(chan struct{}, 1), make(chan struct{})
	instance = engine(t, RoleDecode, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		got <- struct{}{}
		select {
		case <-goOn:
			w.Header().Set("Content-Type", contentType)
			_, _ = io.WriteString(w, body)
			if contentType == "text/event-stream" {
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}
		case <-r.Context().Done():
		}
	})
	return instance, got, goOn
}

func decodeLeg(instance *Instance) Leg {
	return Leg{Instance: instance, API: body.Chat, Body: rawjson.Pieces{[]byte(`{}`)}, RequestID: "r"}
}

func TestDecode_TellsTheTypeOfTheAnswer(t *testing.T) {
	for header, want := range map[string]string{
		"Text/Event-Stream; Charset=UTF-8": "text/event-stream",
		"application/json":                 "application/json",
	} {
		instance := engine(t, RoleDecode, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", header) })
		stream, err := newTestClient(t, "").Decode(t.Context(), decodeLeg(instance), minutes())
		if err != nil {
			t.Fatal(err)
		}
		if stream.ContentType() != header || stream.MediaType() != want {
			t.Errorf("%s: got %q of type %q, want it as sent, of type %q", header, stream.ContentType(), stream.MediaType(), want)
		}
		_ = stream.Close()
	}
}

func TestDecode_ALegOfAClientThatIsGoneIsNotSent(t *testing.T) {
	var calls atomic.Int32
	instance := engine(t, RoleDecode, func(http.ResponseWriter, *http.Request) { calls.Add(1) })
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errLeft)
	_, err := newTestClient(t, "").Decode(ctx, decodeLeg(instance), minutes())
	if leg := legError(t, err); leg.Kind != Gone || leg.Sent || !errors.Is(leg, errLeft) || calls.Load() != 0 {
		t.Errorf("got %+v after %d calls, want the client's cause and nothing sent", leg, calls.Load())
	}
}

func TestDecode_WithoutAGraceEndsWithItsClient(t *testing.T) {
	instance, has, _ := gatedEngine(t, "text/event-stream", "")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-has
		cancel(errLeft)
	}()
	_, err := newTestClient(t, "").Decode(ctx, decodeLeg(instance), minutes())
	if leg := legError(t, err); leg.Kind != Gone || !leg.Sent || !errors.Is(leg, errLeft) {
		t.Errorf("got %+v, want a leg that may have been sent, ended by the client", leg)
	}
}

// Decode has the hand-over when the client leaves: it goes on to its first event.
func TestDecode_OutlivesItsClientUntilTheFirstByte(t *testing.T) {
	instance, has, may := gatedEngine(t, "text/event-stream", "data: 1\n\n")
	ctx, cancel := context.WithCancelCause(t.Context())
	asked := make(chan error, 1)
	limits := minutes()
	limits.Gone = func(cause error) time.Duration {
		asked <- cause
		return time.Minute
	}
	go func() {
		<-has
		cancel(errLeft)
		if cause := <-asked; !errors.Is(cause, errLeft) {
			t.Errorf("asked for %v, want %v", cause, errLeft)
		}
		close(may)
	}()
	stream, err := newTestClient(t, "").Decode(ctx, decodeLeg(instance), limits)
	if err != nil {
		t.Fatalf("the leg ended with its client: %v", err)
	}
	defer func() { _ = stream.Close() }()
	if body, err := io.ReadAll(stream); string(body) != "data: 1\n\n" || !errors.Is(err, errLeft) {
		t.Errorf("read %q and %v, want the first event and %v", body, err, errLeft)
	}
}

func TestDecode_EndsAfterTheGraceOfItsCause(t *testing.T) {
	for cause, kind := range map[error]Kind{errLeft: Gone, ErrTicketEnded: Timeout} {
		instance, has, _ := gatedEngine(t, "text/event-stream", "")
		ctx, cancel := context.WithCancelCause(t.Context())
		limits := minutes()
		limits.Gone = func(got error) time.Duration {
			if errors.Is(got, cause) {
				return 0
			}
			return time.Hour
		}
		go func() {
			<-has
			cancel(cause)
		}()
		_, err := newTestClient(t, "").Decode(ctx, decodeLeg(instance), limits)
		if leg := legError(t, err); leg.Kind != kind || !errors.Is(leg, cause) {
			t.Errorf("got %v, want %v caused by %v", leg, kind, cause)
		}
	}
}

func TestDecode_ASparedAnswerIsReadWithinTheGrace(t *testing.T) {
	instance, has, may := gatedEngine(t, "application/json", `{"a":1}`)
	ctx, cancel := context.WithCancelCause(t.Context())
	asked := make(chan struct{})
	limits := minutes()
	limits.Gone = func(error) time.Duration {
		close(asked)
		return time.Minute
	}
	go func() {
		<-has
		cancel(errLeft)
		<-asked
		close(may)
	}()
	stream, err := newTestClient(t, "").Decode(ctx, decodeLeg(instance), limits)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close() }()
	stream.Spare()
	if body, err := io.ReadAll(stream); err != nil || string(body) != `{"a":1}` {
		t.Errorf("read %q, %v, want all of it", body, err)
	}
}

func TestStream_ClosedIsNotAskedForItsGrace(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	asked := make(chan struct{})
	limits := minutes()
	limits.Gone = func(error) time.Duration {
		close(asked)
		return time.Minute
	}
	_, stream := guard(ctx, limits)
	_ = stream.Close()
	cancel(errLeft)
	stream.limits.abandon(errLeft, time.Minute) // as a call does that was under way
	if stream.limits.timer.Stop() {
		t.Error("a closed stream has a limit")
	}
	select {
	case <-asked:
		t.Error("a closed stream is asked for its grace")
	default:
	}
}
