package e2e

import (
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	metricscollector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// exported is a span as a collector got it.
type exported struct {
	*otlp.Span
	resource map[string]string
}

// attribute is the value of an attribute as text, "" without one.
func (e exported) attribute(key string) string {
	for _, a := range e.Attributes {
		if a.Key == key {
			return valueText(a.Value)
		}
	}
	return ""
}

func valueText(v *common.AnyValue) string {
	switch x := v.Value.(type) {
	case *common.AnyValue_StringValue:
		return x.StringValue
	case *common.AnyValue_IntValue:
		return fmt.Sprint(x.IntValue)
	case *common.AnyValue_DoubleValue:
		return fmt.Sprint(x.DoubleValue)
	case *common.AnyValue_ArrayValue:
		var all []string
		for _, item := range x.ArrayValue.Values {
			all = append(all, valueText(item))
		}
		return strings.Join(all, ",")
	}
	return v.String()
}

func (e exported) id() string     { return hex.EncodeToString(e.SpanId) }
func (e exported) parent() string { return hex.EncodeToString(e.ParentSpanId) }

// collecting is a collector of traces and metrics.
type collecting struct {
	url string

	mu    sync.Mutex // guards the rest
	spans []exported
	raw   strings.Builder // everything that has arrived
	asked []*http.Request // that brought spans
}

// has reports whether a text is in anything that has arrived.
func (c *collecting) has(text string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Contains(c.raw.String(), text)
}

// startCollector collects by OTLP over HTTP until the test ends.
func startCollector(t *testing.T) *collecting {
	t.Helper()
	c := &collecting{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body io.Reader = r.Body
		if r.Header.Get("Content-Encoding") == "gzip" {
			unzipped, err := gzip.NewReader(r.Body)
			if err != nil {
				t.Errorf("collector: %v", err)
				return
			}
			body = unzipped
		}
		raw, err := io.ReadAll(body)
		if err != nil {
			return
		}
		c.takeRequest(t, r, raw)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(srv.Close)
	c.url = srv.URL
	return c
}

func (c *collecting) takeRequest(t *testing.T, r *http.Request, raw []byte) {
	var spans collector.ExportTraceServiceRequest
	var metrics metricscollector.ExportMetricsServiceRequest
	var err error
	switch r.URL.Path {
	case "/v1/traces":
		c.mu.Lock()
		c.asked = append(c.asked, r)
		c.mu.Unlock()
		if err = proto.Unmarshal(raw, &spans); err == nil {
			c.take(&spans)
		}
	case "/v1/metrics":
		if err = proto.Unmarshal(raw, &metrics); err == nil {
			c.mu.Lock()
			c.raw.WriteString(metrics.String())
			c.mu.Unlock()
		}
	default:
		err = fmt.Errorf("%s was asked for", r.URL.Path)
	}
	if err != nil {
		t.Errorf("collector: %v", err)
	}
}

func (c *collecting) take(sent *collector.ExportTraceServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw.WriteString(sent.String())
	for _, of := range sent.ResourceSpans {
		resource := map[string]string{}
		for _, a := range of.Resource.Attributes {
			resource[a.Key] = valueText(a.Value)
		}
		for _, scope := range of.ScopeSpans {
			for _, span := range scope.Spans {
				c.spans = append(c.spans, exported{span, resource})
			}
		}
	}
}

// of waits for the turn of a trace, whose span is the last to come but perhaps in a batch before, and returns it and the others in the
// order of their beginning.
func (c *collecting) of(t *testing.T, id string, spans int) (turn exported, under []exported) {
	t.Helper()
	var all []exported
	if !within(nemesisPatience, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		all = nil
		for _, s := range c.spans {
			if hex.EncodeToString(s.TraceId) == id {
				all = append(all, s)
			}
		}
		return len(all) >= spans
	}) {
		t.Fatalf("trace %s has %d spans, want %d", id, len(all), spans)
	}
	for _, s := range all {
		if s.Kind == otlp.Span_SPAN_KIND_SERVER {
			turn = s
			continue
		}
		under = append(under, s)
	}
	if turn.Span == nil || len(under) != spans-1 {
		t.Fatalf("trace %s: got %d spans, want %d, one of them the turn's: %v", id, len(all), spans, all)
	}
	slices.SortStableFunc(under, func(a, b exported) int { return int(int64(a.StartTimeUnixNano) - int64(b.StartTimeUnixNano)) })
	for _, s := range under {
		if s.parent() != turn.id() {
			t.Errorf("%s is under %s, want under the turn %s", s.Name, s.parent(), turn.id())
		}
		if s.StartTimeUnixNano < turn.StartTimeUnixNano || s.EndTimeUnixNano < s.StartTimeUnixNano || s.EndTimeUnixNano > turn.EndTimeUnixNano {
			t.Errorf("%s lasts from %d to %d, which is not within its turn, from %d to %d", s.Name, s.StartTimeUnixNano, s.EndTimeUnixNano,
				turn.StartTimeUnixNano, turn.EndTimeUnixNano)
		}
	}
	return turn, under
}
