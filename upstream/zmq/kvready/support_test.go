package kvready

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"carryover/upstream"
	"carryover/upstream/zmq/zmtp/zmqtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// notif is a notification as LMCache sends it, of the class where that isn't empty.
func notif(class, id string) []byte {
	if class != "" {
		class = fmt.Sprintf(`"type":%q,`, class)
	}
	return zmqtest.Pack(fmt.Sprintf(`{%s"req_id":%q}`, class, id))
}

// status is a StoragePDStatus with members of which the proxy knows nothing.
func status(id, state string, rank int) []byte {
	return zmqtest.Pack(fmt.Sprintf(`{"type":"StoragePDStatus","req_id":%q,"tp_rank":%d,"state":%q,"writer_epoch":1099511627776,"error_text":null,"manifest_digest":[],`+
		`"ack_endpoint":"tcp://10.0.0.1:1"}`, id, rank, state))
}

// isReady says whether an arrival is over, and how.
func isReady(a upstream.Arrival) (over bool, err error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(zmqtest.ErrEnds)
	err = a.Ready(ctx)
	return !errors.Is(err, zmqtest.ErrEnds), err
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
	ctx, cancel := context.WithTimeout(context.Background(), zmqtest.Limit)
	defer cancel()
	zmqtest.Must(tb, a.Ready(ctx))
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
