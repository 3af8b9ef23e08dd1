package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"carryover/server/record"
	"carryover/server/telemetry"
	"carryover/upstream"
	"carryover/upstream/body"
)

// observed makes the spans of records.
func observed(t *testing.T, records ...record.Turn) tracetest.SpanStubs {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter), sdktrace.WithIDGenerator(telemetry.PresetIDs{}))
	observe := telemetry.Spans(provider.Tracer("test"))
	for i := range records {
		observe(&records[i])
	}
	return exporter.GetSpans()
}

var began = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// aTurn is the record of a turn by prefill and decode, which began in the client's trace.
func aTurn() record.Turn {
	state, _ := trace.ParseTraceState("a=1,b=2")
	return record.Turn{
		Turn: "CANARY-request-id", Asked: record.Asked{API: body.Text, Model: "served", Conversation: "0123456789ab", Source: "session_id"},
		Trace: record.Trace{Context: trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{1, 2, 3}, SpanID: trace.SpanID{5}, TraceFlags: trace.FlagsSampled, TraceState: state,
		}), Parent: trace.SpanID{4}},
		Path: record.Path{Way: record.WayPrefillDecode}, Reuse: record.Reuse{Hit: true, Proof: "tokens", Offered: 100, Read: 64, Cached: 96, Saved: 2 * time.Second},
		Stored: "yes", Keep: record.Keep{Took: time.Millisecond}, Status: 200, Began: began, Took: 10 * time.Second,
		Answer: record.Answer{Finish: "stop", PromptTokens: 120, CompletionTokens: 7},
		Legs: []*record.Leg{
			{Role: upstream.RolePrefill, Instance: "p", Span: [8]byte{6}, Began: began.Add(time.Second), Took: time.Second, Whole: time.Second},
			{Role: upstream.RoleDecode, Instance: "d", Span: [8]byte{7}, Began: began.Add(2 * time.Second), Took: time.Second, First: 2 * time.Second, Whole: 5 * time.Second},
		},
	}
}

func get(s tracetest.SpanStub, key string) string {
	for _, a := range s.Attributes {
		if a.Key == attribute.Key(key) {
			return a.Value.String()
		}
	}
	return ""
}

func named(t *testing.T, spans tracetest.SpanStubs, name string) tracetest.SpanStub {
	t.Helper()
	i := slices.IndexFunc(spans, func(s tracetest.SpanStub) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("no span %q in %v", name, spans)
	}
	return spans[i]
}

func TestSpans_HaveTheIDsAndTimesOfTheRecord(t *testing.T) {
	spans := observed(t, aTurn())
	if len(spans) != 6 {
		t.Fatalf("got %d spans, want 6: %v", len(spans), spans)
	}
	for _, tc := range []struct {
		name         string
		kind         trace.SpanKind
		id           byte // the first of it; 0 for any id
		begins, ends time.Duration
	}{
		{"POST /v1/completions", trace.SpanKindServer, 5, 0, 10 * time.Second},
		{"lookup", trace.SpanKindInternal, 0, time.Second, time.Second},
		{"handover wait", trace.SpanKindInternal, 0, 2 * time.Second, 2 * time.Second},
		{"put", trace.SpanKindInternal, 0, 7*time.Second - time.Millisecond, 7 * time.Second},
		{"prefill leg", trace.SpanKindClient, 6, time.Second, 2 * time.Second},
		{"decode leg", trace.SpanKindClient, 7, 2 * time.Second, 7 * time.Second},
	} {
		s := named(t, spans, tc.name)
		parent, remote, state := trace.SpanID{5}, false, ""
		if tc.kind == trace.SpanKindServer {
			parent, remote, state = trace.SpanID{4}, true, "a=1,b=2"
		}
		if s.SpanContext.TraceID() != (trace.TraceID{1, 2, 3}) || !s.SpanContext.IsValid() || tc.id != 0 && s.SpanContext.SpanID()[0] != tc.id || s.Parent.SpanID() != parent || s.Parent.IsRemote() != remote {
			t.Errorf("%s: got %v under %v", tc.name, s.SpanContext, s.Parent)
		}
		if got := s.SpanContext.TraceState().String(); state != "" && got != state {
			t.Errorf("%s: got state %q, want %q", tc.name, got, state)
		}
		if s.SpanKind != tc.kind || s.StartTime.Sub(began) != tc.begins || s.EndTime.Sub(began) != tc.ends || s.Status.Code != codes.Unset {
			t.Errorf("%s: got kind %s, from %s to %s, status %v", tc.name, s.SpanKind, s.StartTime.Sub(began), s.EndTime.Sub(began), s.Status)
		}
		if tc.name == "decode leg" && (len(s.Events) != 1 || s.Events[0].Time.Sub(s.StartTime) != 2*time.Second) {
			t.Errorf("got events %v", s.Events)
		}
	}
}

func TestSpans_AreMadeOfRecordedTracesOnly(t *testing.T) {
	off, forbidden := aTurn(), aTurn()
	off.Trace.Context = off.Trace.Context.WithRemote(true) // turns are not traced, and the client's context went on
	forbidden.Trace.Context = forbidden.Trace.Context.WithTraceFlags(0)
	if spans := observed(t, off, forbidden); len(spans) != 0 {
		t.Errorf("got %v", spans)
	}
	root := aTurn()
	root.Trace.Parent, root.Trace.Context = trace.SpanID{}, root.Trace.Context.WithTraceState(trace.TraceState{})
	if s := named(t, observed(t, root), "POST /v1/completions"); s.Parent.IsValid() || s.SpanContext.TraceID() != (trace.TraceID{1, 2, 3}) || s.SpanContext.SpanID() != (trace.SpanID{5}) {
		t.Errorf("got %v under %v, want the root of the trace", s.SpanContext, s.Parent)
	}
}

func TestSpans_SayHowATurnFailed(t *testing.T) {
	leg := &upstream.LegError{Role: upstream.RoleDecode, Instance: "d", Kind: upstream.Status, Sent: true, Status: 503, Fault: upstream.Fault{Message: "CANARY"}}
	for name, tc := range map[string]struct {
		turn   record.Turn
		kind   string
		failed bool
	}{
		"nothing":                  {record.Turn{Status: 200}, "", false},
		"the client's mistake":     {record.Turn{Status: 400, Code: "invalid_request", Err: leg}, "invalid_request", false},
		"the deployment":           {record.Turn{Status: 502, Code: "decode_failed", Err: leg}, "decode_failed", true},
		"the stream broke off":     {record.Turn{Status: 200, Code: "decode_failed", Err: leg}, "decode_failed", true},
		"it broke off in an event": {record.Turn{Status: 200, Err: leg}, "status", true},
		"the client left":          {record.Turn{Status: 499, Code: "client_gone", Err: context.Canceled}, "client_gone", false},
		"a defect":                 {record.Turn{Status: 200, Err: errors.New("CANARY")}, "_OTHER", true},
	} {
		r := aTurn()
		r.Status, r.Code, r.Err = tc.turn.Status, tc.turn.Code, tc.turn.Err
		turn := named(t, observed(t, r), "POST /v1/completions")
		if got, want := get(turn, "http.response.status_code"), strings.ReplaceAll(fmt.Sprint(r.Status), "499", ""); got != want {
			t.Errorf("%s: got status %q, want %q", name, got, want)
		}
		if got := get(turn, "error.type"); got != tc.kind || (turn.Status.Code == codes.Error) != tc.failed || turn.Status.Description != "" {
			t.Errorf("%s: got %q, %v; want %q, %v", name, got, turn.Status, tc.kind, tc.failed)
		}
	}
}

func TestSpans_SayHowLegsFailed(t *testing.T) {
	r := aTurn()
	r.Stored, r.Model, r.Unserved, r.Answer.Finish = "unavailable", "CANARY", true, "CANARY"
	r.Legs[0].Err = &upstream.LegError{Role: upstream.RolePrefill, Kind: upstream.Gone, Err: context.Canceled}
	r.Legs[1].Err = &upstream.LegError{Role: upstream.RoleDecode, Kind: upstream.Status, Status: 500, Fault: upstream.Fault{Message: "CANARY"}, Err: errors.New("CANARY")}
	spans := observed(t, r)
	if s := named(t, spans, "prefill leg"); get(s, "error.type") != "gone" || s.Status.Code != codes.Unset {
		t.Errorf("a leg whose client left: %v, %v", s.Attributes, s.Status)
	}
	if s := named(t, spans, "decode leg"); get(s, "error.type") != "status" || get(s, "http.response.status_code") != "500" || s.Status.Code != codes.Error {
		t.Errorf("a leg that failed: %v, %v", s.Attributes, s.Status)
	}
	if text := fmt.Sprintf("%+v", spans); strings.Contains(text, "CANARY") {
		t.Errorf("spans show what a client or engine has written: %s", text)
	}
}
