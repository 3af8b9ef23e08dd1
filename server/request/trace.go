package request

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"carryover/server/record"
)

// Trace reads a client's context. A traced turn gets a span in the client's trace, or in a new one; sample is nil if turns are not traced.
func Trace(header http.Header, sample record.Sample) record.Trace {
	client := parseTrace(header)
	if sample == nil {
		return record.Trace{Context: client}
	}
	if !client.IsValid() {
		var id trace.TraceID
		_, _ = rand.Read(id[:]) // never fails since Go 1.24
		client = client.WithTraceID(id)
	}
	flags := client.TraceFlags().WithSampled(sample(client))
	return record.Trace{Context: client.WithSpanID(record.NewSpanID()).WithTraceFlags(flags).WithRemote(false), Parent: client.SpanID()}
}

// traceparentLength is the length of version 00; later versions may append more.
const traceparentLength = len("00-0123456789abcdef0123456789abcdef-0123456789abcdef-00")

// maxTracestate bounds a tracestate. Level 1 requires that at least 512 bytes are passed on.
const maxTracestate = 512

// parseTrace reads a client's context. An invalid traceparent counts as none; an invalid tracestate alone is dropped.
func parseTrace(header http.Header) trace.SpanContext {
	values := header["Traceparent"]
	if len(values) != 1 { // with several, nothing tells which of them a hop has added
		return trace.SpanContext{}
	}
	parent := values[0]
	if version0 := strings.HasPrefix(parent, "00"); version0 && len(parent) != traceparentLength {
		return trace.SpanContext{}
	} else if version0 {
		// Unknown flags are ignored (Trace Context level 2, 3.2.2.5). OpenTelemetry 1.47 refuses a context that has them.
		var flags [1]byte
		if _, err := hex.Decode(flags[:], []byte(parent[53:])); err == nil && flags[0] > 3 && strings.ToLower(parent) == parent {
			parent = parent[:53] + hex.EncodeToString([]byte{flags[0] & 3})
		}
	}
	carrier := propagation.MapCarrier{"traceparent": parent, "tracestate": tracestate(header["Tracestate"])}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}

// tracestate drops white space around members, and empty members: the grammar allows them, and OpenTelemetry 1.47 does not.
func tracestate(values []string) string {
	all := strings.Join(values, ",")
	if len(all) > maxTracestate {
		return ""
	}
	var members []string
	for member := range strings.SplitSeq(all, ",") {
		if member = strings.Trim(member, " \t"); member != "" {
			members = append(members, member)
		}
	}
	return strings.Join(members, ",")
}
