package telemetry

import (
	"context"
	"net/http"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/body"
)

// Spans returns an observer that makes a server span for each recorded turn, and below it one per leg, with the ids that the legs
// carried, and one per step between them. The tracer's provider must use PresetIDs.
func Spans(tracer trace.Tracer) record.Observer {
	return (&spans{tracer}).observe
}

// Sample returns the decision of the tracer's sampler for a turn. It starts a span that never ends and is not exported, because turns
// begin long before their spans are made.
func Sample(tracer trace.Tracer) record.Sample {
	return func(client trace.SpanContext) bool {
		_, span := tracer.Start(trace.ContextWithSpanContext(context.Background(), client), "sample")
		return span.SpanContext().IsSampled()
	}
}

type spans struct{ tracer trace.Tracer }

func (s *spans) observe(r *record.Turn) {
	if !r.Trace.Recorded() {
		return
	}
	shared := sharedAttributes(r)
	parent := r.Trace.Context.WithSpanID(r.Trace.Parent).WithRemote(r.Trace.Parent.IsValid()) // without a span it gives the trace's id only
	ctx := trace.ContextWithSpanContext(context.Background(), parent)
	_, turn := s.tracer.Start(preset(ctx, r.Trace.Context.SpanID()), methodPost+" "+r.API.Path(), trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(r.Began),
		trace.WithAttributes(shared...), trace.WithAttributes(turnAttributes(r)...))
	under := trace.ContextWithSpan(context.Background(), turn)
	for _, leg := range r.Legs {
		s.leg(under, leg, shared)
	}
	s.steps(under, r)
	if kind, ours := failureOf(r); kind != "" {
		turn.SetAttributes(attrErrorType.String(kind))
		if ours {
			turn.SetStatus(codes.Error, "")
		}
	}
	turn.End(trace.WithTimestamp(r.Began.Add(r.Took)))
}

func sharedAttributes(r *record.Turn) []attribute.KeyValue {
	attrs := []attribute.KeyValue{attrMethod.String(methodPost), attrOperation.String(operation(r.API)), attrProvider.String(providerVLLM)}
	if r.Model != "" && !r.Unserved {
		attrs = append(attrs, attrModel.String(r.Model))
	}
	return attrs
}

func turnAttributes(r *record.Turn) []attribute.KeyValue {
	attrs := []attribute.KeyValue{
		attrRoute.String(r.API.Path()), attribute.String("url.path", r.API.Path()), attrScheme.String(schemeHTTP), attribute.Int("carryover.retries", r.Retries),
		attribute.Float64("carryover.queue.time", r.Queued.Seconds()),
	}
	words := func(key attribute.Key, value string) {
		if value != "" {
			attrs = append(attrs, key.String(value))
		}
	}
	if r.Status != 0 && r.Status != record.StatusClientGone { // no client has received that status
		attrs = append(attrs, attrStatusCode.Int(r.Status))
	}
	if r.TTFT > 0 {
		attrs = append(attrs, attribute.Float64("carryover.ttft", r.TTFT.Seconds()))
	}
	if r.Whole > 0 {
		attrs = append(attrs, attribute.Float64("carryover.answer", r.Whole.Seconds()))
	}
	words("gen_ai.conversation.id", r.Conversation)
	words("carryover.conversation.source", r.Source)
	words("carryover.path", r.Path.Way)
	words("carryover.path.reason", r.Path.Reason)
	words("carryover.prefill.instance", r.Leg(upstream.RolePrefill).Instance)
	words("carryover.decode.instance", r.Leg(upstream.RoleDecode).Instance)
	words(attrStored, r.Stored)
	if slices.Contains([]string{"stop", "length", "tool_calls", "function_call", "content_filter"}, r.Answer.Finish) {
		attrs = append(attrs, attribute.StringSlice("gen_ai.response.finish_reasons", []string{r.Answer.Finish}))
	}
	count := func(key attribute.Key, n int) {
		if n >= 0 {
			attrs = append(attrs, key.Int(n))
		}
	}
	count("gen_ai.usage.input_tokens", r.Answer.PromptTokens)
	count("gen_ai.usage.output_tokens", r.Answer.CompletionTokens)
	count("gen_ai.usage.cache_read.input_tokens", r.Reuse.Cached)
	return append(attrs, reuseAttributes(&r.Reuse)...)
}

func reuseAttributes(u *record.Reuse) []attribute.KeyValue {
	outcome, reason := u.Outcome()
	attrs := []attribute.KeyValue{attribute.String("carryover.reuse.outcome", outcome)}
	if reason != "" {
		attrs = append(attrs, attribute.String("carryover.reuse.reason", reason))
	}
	if outcome == record.Hit {
		attrs = append(attrs,
			attribute.String("carryover.reuse.proof", u.Proof), attribute.Int("carryover.reuse.tokens_offered", u.Offered),
			attribute.Int("carryover.reuse.tokens_read", u.Read), attribute.Float64("carryover.reuse.saved", u.Saved.Seconds()),
		)
	}
	if (outcome == record.Hit || outcome == record.Prefix) && u.Cached >= 0 {
		attrs = append(attrs, attribute.Int("carryover.reuse.tokens_confirmed", u.Cached))
	}
	return attrs
}

// steps makes spans of the last attempt's look-up, of its wait between the legs, and of the put of its ticket. The record has how long they took;
// when they were follows from the legs.
func (s *spans) steps(under context.Context, r *record.Turn) {
	step := func(name string, took time.Duration, ended time.Time) {
		_, span := s.tracer.Start(preset(under, record.NewSpanID()), name, trace.WithTimestamp(ended.Add(-took)))
		span.End(trace.WithTimestamp(ended))
	}
	prefill, first := r.Leg(upstream.RolePrefill), r.Leg(upstream.RoleDecode)
	if r.Keep.Took > 0 {
		step("put", r.Keep.Took, first.Began.Add(first.Whole))
	}
	if prefill.Instance != "" && prefill.Attempt == r.Retries {
		if wait := first.Began.Sub(prefill.Began.Add(prefill.Took)); wait >= 0 {
			step("handover wait", wait, first.Began)
		}
		first = prefill
	}
	if first.Instance != "" {
		step("lookup", r.Lookup, first.Began)
	}
}

const firstEvent = "first event"

func (s *spans) leg(under context.Context, leg *record.Leg, shared []attribute.KeyValue) {
	role := leg.Role.String()
	_, span := s.tracer.Start(preset(under, leg.Span), role+" leg", trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(leg.Began),
		trace.WithAttributes(shared...), trace.WithAttributes(attribute.String("carryover.role", role), attribute.String("carryover.instance", leg.Instance), attrAttempt.Int(leg.Attempt)))
	if leg.First > 0 {
		span.SetAttributes(attribute.Float64("gen_ai.response.time_to_first_chunk", leg.First.Seconds()))
		span.AddEvent(firstEvent, trace.WithTimestamp(leg.Began.Add(leg.First)))
	}
	status := http.StatusOK
	if leg.Err != nil {
		status = 0
		span.SetAttributes(attrErrorType.String(failureOfLeg(leg.Err)))
		if failed := upstream.LegOf(leg.Err); failed != nil {
			if status = failed.Status; failed.Kind != upstream.Gone {
				span.SetStatus(codes.Error, "")
			}
		}
	}
	if status > 0 {
		span.SetAttributes(attrStatusCode.Int(status))
	}
	span.End(trace.WithTimestamp(leg.Began.Add(leg.Whole)))
}

type presetKey struct{}

func preset(ctx context.Context, span trace.SpanID) context.Context {
	return context.WithValue(ctx, presetKey{}, span)
}

// PresetIDs gives spans the ids from their context. OpenTelemetry gives a span its id when it starts, but engines have already got our ids
// by then.
type PresetIDs struct{}

// NewIDs implements the SDK's IDGenerator.
func (g PresetIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	id := trace.SpanContextFromContext(ctx).TraceID()
	return id, g.NewSpanID(ctx, id)
}

// NewSpanID implements the SDK's IDGenerator.
func (PresetIDs) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	span, _ := ctx.Value(presetKey{}).(trace.SpanID)
	return span
}

// failureOf returns how a turn failed, "" if it did not, and whether the deployment is at fault and not the client. Spans and metrics use
// the code of the error that the client got.
func failureOf(r *record.Turn) (kind string, ours bool) {
	switch {
	case r.ClientLeft():
		return r.Code, false
	case r.Code != "":
		return r.Code, r.Status >= http.StatusInternalServerError || r.Status == http.StatusOK // status 200: the answer broke off
	case r.Err != nil:
		return failureOfLeg(r.Err), true
	}
	return "", false
}

func failureOfLeg(err error) string {
	switch leg := upstream.LegOf(err); {
	case leg != nil:
		return leg.Kind.String()
	case err != nil:
		return "_OTHER" // the word of the conventions for any other error
	}
	return ""
}

// HTTP's conventions are stable, gen_ai's in development (repository semantic-conventions-genai, 2026-11).
const (
	attrErrorType  = attribute.Key("error.type")
	attrMethod     = attribute.Key("http.request.method")
	attrRoute      = attribute.Key("http.route")
	attrStatusCode = attribute.Key("http.response.status_code")
	attrScheme     = attribute.Key("url.scheme")

	attrOperation = attribute.Key("gen_ai.operation.name")
	attrProvider  = attribute.Key("gen_ai.provider.name")
	attrModel     = attribute.Key("gen_ai.request.model")
	attrTokenType = attribute.Key("gen_ai.token.type")
)

const (
	methodPost   = "POST"
	schemeHTTP   = "http" // TLS ends before the program
	providerVLLM = "vllm" // our own word; the conventions name no provider for vLLM
)

// operation returns what an endpoint does, in the words of the conventions.
func operation(api body.API) string {
	if api == body.Text {
		return "text_completion"
	}
	return "chat"
}

const (
	attrAttempt = attribute.Key("carryover.attempt") // 0 for the first
	attrStored  = attribute.Key("carryover.stored")  // yes, or why the answer left no ticket
)
