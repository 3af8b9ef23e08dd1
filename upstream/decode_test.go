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

// legTo is a leg of an empty body.
func legTo(instance *Instance) Leg {
	return Leg{Instance: instance, API: body.Chat, Body: rawjson.Pieces{[]byte(`{}`)}, RequestID: "r"}
}

func TestDecode_ALegOfAClientThatIsGoneIsNotSent(t *testing.T) {
	var calls atomic.Int32
	instance := engine(t, RoleDecode, func(http.ResponseWriter, *http.Request) { calls.Add(1) })
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errLeft)
	_, err := newTestClient(t, "").Decode(ctx, legTo(instance), minutes())
	if leg := legError(t, err); leg.Kind != Gone || leg.Sent || !errors.Is(leg, errLeft) || calls.Load() != 0 {
		t.Errorf("got %+v after %d calls, want the client's cause and nothing sent", leg, calls.Load())
	}
}

// Decode has the hand-over when the client leaves: it goes on to its first event, and a spared answer to its end.
func TestDecode_OutlivesItsClientWithinTheGrace(t *testing.T) {
	for _, tc := range []struct {
		contentType, body string
		spared            bool
		err               error
	}{{"text/event-stream", "data: 1\n\n", false, errLeft}, {"application/json", `{"a":1}`, true, nil}} {
		instance, has, may := gatedEngine(t, tc.contentType, tc.body)
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
		stream, err := newTestClient(t, "").Decode(ctx, legTo(instance), limits)
		if err != nil {
			t.Fatalf("the leg ended with its client: %v", err)
		}
		if tc.spared {
			stream.Spare()
		}
		if body, err := io.ReadAll(stream); string(body) != tc.body || !errors.Is(err, tc.err) {
			t.Errorf("read %q and %v, want %q and %v", body, err, tc.body, tc.err)
		}
		_ = stream.Close()
	}
}

func TestDecode_EndsAfterTheGraceOfItsCause(t *testing.T) {
	for _, tc := range []struct {
		cause error
		kind  Kind
		asked bool // for a grace
	}{{errLeft, Gone, true}, {ErrTicketEnded, Timeout, true}, {errLeft, Gone, false}} {
		instance, has, _ := gatedEngine(t, "text/event-stream", "")
		ctx, cancel := context.WithCancelCause(t.Context())
		limits := minutes()
		if tc.asked {
			limits.Gone = func(got error) time.Duration {
				if errors.Is(got, tc.cause) {
					return 0
				}
				return time.Hour
			}
		}
		go func() {
			<-has
			cancel(tc.cause)
		}()
		_, err := newTestClient(t, "").Decode(ctx, legTo(instance), limits)
		if leg := legError(t, err); leg.Kind != tc.kind || !leg.Sent || !errors.Is(leg, tc.cause) {
			t.Errorf("got %+v, want %v caused by %v", leg, tc.kind, tc.cause)
		}
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
