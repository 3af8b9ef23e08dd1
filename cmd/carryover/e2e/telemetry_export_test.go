package e2e

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/testrig"
)

// heldUp is how long a turn takes at least that waits for an export, or the end of the program beyond its limit.
const heldUp = time.Minute

// serveTurns runs the program with its traces going to a collector, has it serve turns, ends it, and returns how long a turn took at
// most and how long the end did.
func serveTurns(t *testing.T, n int, env ...string) (turn, end time.Duration, log string) {
	t.Helper()
	if testing.Short() {
		t.Skip("drives the whole program")
	}
	var r tracedRig
	var stopping time.Time
	t.Run("turns", func(t *testing.T) {
		r = startTraced(t, append([]string{
			"OTEL_BSP_SCHEDULE_DELAY=1", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=4", "OTEL_BSP_MAX_QUEUE_SIZE=8",
			"OTEL_BSP_EXPORT_TIMEOUT=300000", "OTEL_EXPORTER_OTLP_TIMEOUT=300000", // what is held up by an export is held up for longer than heldUp
		}, env...))
		for i := range n {
			began := time.Now()
			if a := r.turn(t, &history{}, traceOf(i), i%2 == 0, object{"max_tokens": 4}); a.status != http.StatusOK {
				t.Errorf("turn %d: status %d", i, a.status)
			}
			turn = max(turn, time.Since(began))
		}
		stopping = time.Now()
	})
	return turn, time.Since(stopping), r.log.String()
}

func TestExport_ACollectorThatHangsCostsNoTurnAndLittleOfTheEnd(t *testing.T) {
	gate := make(chan struct{})
	var open atomic.Int64 // requests
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // so that the end of the connection is noticed
		open.Add(1)
		defer open.Add(-1)
		select {
		case <-gate:
		case <-r.Context().Done():
		}
	}))
	defer srv.Close()
	defer close(gate)
	metrics := []string{"OTEL_METRICS_EXPORTER=otlp", "OTEL_METRIC_EXPORT_INTERVAL=20", "OTEL_EXPORTER_OTLP_METRICS_TIMEOUT=120000"}
	if turn, end, _ := serveTurns(t, 5, append(metrics, "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1")...); turn > heldUp || end > app.FlushLimit+app.MetricsEndLimit+heldUp {
		t.Errorf("where no collector is, a turn took %s, and the end %s", turn, end)
	}
	turn, end, log := serveTurns(t, 10, append(metrics, "OTEL_EXPORTER_OTLP_ENDPOINT="+srv.URL)...)
	if turn > heldUp {
		t.Errorf("a turn took %s", turn)
	}
	if end < app.FlushLimit/2 || end > app.FlushLimit+app.MetricsEndLimit+heldUp {
		t.Errorf("the end took %s, want about %s", end, app.FlushLimit)
	}
	if !testrig.Eventually(func() bool { return open.Load() == 0 }) {
		t.Errorf("%d requests go on behind the end", open.Load())
	}
	if !strings.Contains(log, "spans of the last turns are lost") {
		t.Errorf("nothing is said of the spans that are lost: %s", log)
	}
}

func TestExport_ACollectorThatFailsIsMentionedOnce(t *testing.T) {
	asked := make(chan struct{}, 100)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		http.Error(w, strings.Repeat("x", 10000), http.StatusInternalServerError)
	}))
	defer srv.Close()
	turn, end, log := serveTurns(t, 10, "OTEL_EXPORTER_OTLP_ENDPOINT="+srv.URL)
	if turn > heldUp || end > app.FlushLimit+heldUp {
		t.Errorf("a turn took %s, the end %s", turn, end)
	}
	if len(asked) < 2 {
		t.Errorf("the collector was asked %d times, want at least twice", len(asked))
	}
	if n := strings.Count(log, "telemetry is not exported"); n != 1 {
		t.Errorf("failures are logged %d times, want once", n)
	}
	if strings.Contains(log, strings.Repeat("x", app.MaxExportError)) {
		t.Error("the log has all that the collector says")
	}
}

// grpcCollector collects by OTLP over gRPC.
type grpcCollector struct {
	collector.UnimplementedTraceServiceServer
	into *collecting
	mu   sync.Mutex // guards key
	key  string
}

// Export implements collector.TraceServiceServer.
func (c *grpcCollector) Export(ctx context.Context, sent *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	if md, ok := metadata.FromIncomingContext(ctx); ok && len(md.Get("x-key")) > 0 {
		c.mu.Lock()
		c.key = md.Get("x-key")[0]
		c.mu.Unlock()
	}
	c.into.take(sent)
	return &collector.ExportTraceServiceResponse{}, nil
}

func TestExport_ByEachProtocolWithHeadersAndCompression(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	collects := &grpcCollector{into: &collecting{}}
	srv := grpc.NewServer()
	collector.RegisterTraceServiceServer(srv, collects)
	served := make(chan error, 1) // one result, read once
	go func() { served <- srv.Serve(listener) }()
	t.Cleanup(func() {
		srv.Stop()
		// A server that was stopped before its goroutine came to Serve says so.
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Errorf("collector: %v", err)
		}
	})

	t.Run("grpc", func(t *testing.T) {
		r := startTraced(t, []string{
			"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://" + listener.Addr().String(), "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_EXPORTER_OTLP_HEADERS=x-key=a%20secret",
			"OTEL_EXPORTER_OTLP_COMPRESSION=gzip",
		})
		r.turn(t, &history{}, traceOf(0), true, nil)
		turn, _ := collects.into.of(t, traceOf(0), 6)
		collects.mu.Lock()
		defer collects.mu.Unlock()
		if turn.Name != "POST /v1/chat/completions" || collects.key != "a secret" {
			t.Errorf("got %q with key %q", turn.Name, collects.key)
		}
	})
	t.Run("http", func(t *testing.T) {
		r := startTraced(t, []string{"OTEL_EXPORTER_OTLP_TRACES_HEADERS=x-key=a%20secret", "OTEL_EXPORTER_OTLP_HEADERS=x-key=another", "OTEL_EXPORTER_OTLP_COMPRESSION=gzip",
			"OTEL_METRICS_EXPORTER=otlp", "OTEL_METRIC_EXPORT_INTERVAL=50", "OTEL_SERVICE_NAME=carryover-of-a-test"})
		r.turn(t, &history{}, traceOf(0), true, nil)
		r.traces.of(t, traceOf(0), 6)
		for _, want := range []string{"carryover.turns", "first_turn", "carryover-of-a-test", "carryover.pinned.tokens"} {
			if !testrig.Eventually(func() bool { return r.traces.has(want) }) {
				t.Errorf("the collector has not got %s", want)
			}
		}
		r.traces.mu.Lock()
		defer r.traces.mu.Unlock()
		asked := r.traces.asked[0]
		if asked.URL.Path != "/v1/traces" || asked.Header.Get("X-Key") != "a secret" || asked.Header.Get("Content-Encoding") != "gzip" {
			t.Errorf("got %s with %v", asked.URL, asked.Header)
		}
		if strings.Contains(r.log.String(), "a secret") {
			t.Errorf("the log has the key: %s", r.log)
		}
	})
}

// A collector's redirect would carry the credential of its headers elsewhere.
func TestExport_FollowsNoRedirect(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		t.Errorf("a redirect was followed with %v", r.Header)
	}))
	defer elsewhere.Close()
	asked := make(chan string, 100)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	}))
	defer srv.Close()
	serveTurns(t, 1, "OTEL_EXPORTER_OTLP_ENDPOINT="+srv.URL, "OTEL_EXPORTER_OTLP_HEADERS=x-key=secret", "OTEL_METRICS_EXPORTER=otlp")
	paths := map[string]bool{}
	for range len(asked) {
		paths[<-asked] = true
	}
	if !paths["/v1/traces"] || !paths["/v1/metrics"] {
		t.Errorf("the collector was asked for %v", paths)
	}
}
