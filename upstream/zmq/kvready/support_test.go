package kvready

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tinylib/msgp/msgp"
	"go.uber.org/goleak"

	"carryover/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// limit bounds every wait of a test.
const limit = 60 * time.Second

var errTestEnds = errors.New("the test ends")

// notif is a notification as LMCache sends it, of the class where that isn't empty.
func notif(class, id string) []byte {
	b := msgp.AppendMapHeader(nil, 1)
	if class != "" {
		b = msgp.AppendString(msgp.AppendString(msgp.AppendMapHeader(nil, 2), "type"), class)
	}
	return msgp.AppendString(msgp.AppendString(b, "req_id"), id)
}

// status is a StoragePDStatus with all members of which the proxy knows nothing.
func status(id, state string, rank int64) []byte {
	b := msgp.AppendMapHeader(nil, 8)
	b = msgp.AppendString(msgp.AppendString(b, "type"), "StoragePDStatus")
	b = msgp.AppendString(msgp.AppendString(b, "req_id"), id)
	b = msgp.AppendInt64(msgp.AppendString(b, "tp_rank"), rank)
	b = msgp.AppendString(msgp.AppendString(b, "state"), state)
	b = msgp.AppendUint64(msgp.AppendString(b, "writer_epoch"), 1<<40)
	b = msgp.AppendNil(msgp.AppendString(b, "error_text"))
	b = msgp.AppendArrayHeader(msgp.AppendString(b, "manifest_digest"), 0)
	return msgp.AppendString(msgp.AppendString(b, "ack_endpoint"), "tcp://10.0.0.1:1")
}

// isReady says whether an arrival is over, and how.
func isReady(a upstream.Arrival) (over bool, err error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errTestEnds)
	err = a.Ready(ctx)
	return !errors.Is(err, errTestEnds), err
}

// wantReady checks an arrival that is over or is not.
func wantReady(tb testing.TB, a upstream.Arrival, want bool) {
	tb.Helper()
	if over, err := isReady(a); over != want || over && err != nil {
		tb.Fatalf("ready: got %v, error %v, want %v", over, err, want)
	}
}

// await waits for an arrival.
func await(tb testing.TB, a upstream.Arrival) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	must(tb, a.Ready(ctx))
}

// wantStats compares the counts, without those of relays where want has none.
func wantStats(tb testing.TB, w *Waits, want Stats) {
	tb.Helper()
	if got := w.Stats(); got != want {
		tb.Errorf("stats:\ngot  %+v\nwant %+v", got, want)
	}
}

// balanced checks that each note has been counted as one thing.
func balanced(tb testing.TB, s Stats) {
	tb.Helper()
	if !addsUp(s) {
		tb.Errorf("the counts don't add up: %+v", s)
	}
}

func addsUp(s Stats) bool {
	return s.Received == s.Counted+s.Failed+s.Surplus+s.Unknown+s.Ignored+s.Malformed
}

// settled is balanced while messages of other replicas may still be on their way: each is counted as received first.
func settled(tb testing.TB, w *Waits) {
	tb.Helper()
	eventually(tb, "counts that add up", func() bool { return addsUp(w.Stats()) })
}

// run runs until the test or the returned function ends it, and checks that it returns the cause then.
func run(tb testing.TB, f func(context.Context) error) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel(errTestEnds)
		if err := <-done; !errors.Is(err, errTestEnds) {
			tb.Errorf("got %v, want the cause of its context", err)
		}
	})
	tb.Cleanup(stop)
	return stop
}

// eventually waits until holds says yes.
func eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	deadline, ticker := time.NewTimer(limit), time.NewTicker(time.Millisecond)
	defer deadline.Stop()
	defer ticker.Stop()
	for !holds() {
		select {
		case <-ticker.C:
		case <-deadline.C:
			tb.Fatalf("%s: not within %v", what, limit)
		}
	}
}

// must ends the test at an error.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
