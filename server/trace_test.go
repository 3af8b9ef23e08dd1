package server_test

import (
	"context"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"carryover/server"
)

// The context of a client.
const (
	traceID    = "4bf92f3577b34da6a3ce929d0e0e4736"
	clientSpan = "00f067aa0ba902b7"
	parentOn   = "00-" + traceID + "-" + clientSpan + "-01"
	parentOff  = "00-" + traceID + "-" + clientSpan + "-00"
)

var (
	traceparentOf = regexp.MustCompile(`^00-([0-9a-f]{32})-([0-9a-f]{16})-0[0-3]$`)
	tracestateOf  = regexp.MustCompile(`^[a-z0-9][a-z0-9_\-*/@]*=[ -+\--<>-~]+(,[a-z0-9][a-z0-9_\-*/@]*=[ -+\--<>-~]+)*$`)
)

// wellFormed reports whether an engine may be sent this context.
func wellFormed(header http.Header) bool {
	parent, state := header["Traceparent"], header["Tracestate"]
	if len(parent) != 1 || len(state) > 1 {
		return false
	}
	ids := traceparentOf.FindStringSubmatch(parent[0])
	if ids == nil || strings.Trim(ids[1], "0") == "" || strings.Trim(ids[2], "0") == "" {
		return false
	}
	return len(state) == 0 || len(state[0]) <= 512 && tracestateOf.MatchString(state[0])
}

func TestTrace_OnlyAValidContextIsPassedOn(t *testing.T) {
	for sent, want := range map[string]string{
		parentOn:             parentOn,
		parentOff:            parentOff,
		parentOn[:53] + "03": parentOn[:53] + "03",
		parentOn[:53] + "ff": parentOn[:53] + "03", // flags that nobody knows are not passed on
		"01" + parentOn[2:]:  parentOn,
		"cc" + parentOn[2:] + "-what-the-future-will-be-like":       parentOn,
		"cc" + parentOn[2:] + ".what":                               "",
		parentOn + "-more":                                          "",
		parentOn + "-":                                              "",
		"ff" + parentOn[2:]:                                         "",
		strings.ToUpper(parentOn):                                   "",
		strings.Replace(parentOn, "b", "B", 1):                      "",
		"00-00000000000000000000000000000000-" + clientSpan + "-01": "",
		"00-" + traceID + "-0000000000000000-01":                    "",
		parentOn[:54]:                                               "",
		"":                                                          "",
		" " + parentOn:                                              "",
		strings.ReplaceAll(parentOn, "-", "_"):                      "",
		strings.Replace(parentOn, "4b", "zz", 1):                    "",
		"0x" + parentOn[2:]:                                         "",
		parentOn + "\r\nX-Evil: 1":                                  "",
	} {
		if got, _ := server.PassOn(http.Header{"Traceparent": {sent}}); got != want {
			t.Errorf("%q: got %q, want %q", sent, got, want)
		}
	}
	if got, _ := server.PassOn(http.Header{"Traceparent": {parentOn, parentOn}}); got != "" {
		t.Errorf("two contexts: got %q, want none", got)
	}
}

func TestTrace_StateIsPassedOnIfItsGrammarAllows(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	many := func(n int) string {
		var members []string
		for i := range n {
			members = append(members, string(rune('a'+i%26))+long(i/26)+"=1")
		}
		return strings.Join(members, ",")
	}
	for sent, want := range map[string]string{ // lines are divided by |
		"a=1":                                "a=1",
		"a=1,b=2|c=3":                        "a=1,b=2,c=3",
		" a=1 ,\t,b=x y/z":                   "a=1,b=x y/z",
		"0tenant@sys=1":                      "0tenant@sys=1",
		many(32):                             many(32),
		many(33):                             "",
		"a=1,a=2":                            "",
		"a":                                  "",
		"a=":                                 "",
		"A=1":                                "",
		"0a=1":                               "",
		"a@b@c=1":                            "",
		"@b=1":                               "",
		"a@=1":                               "",
		"a@" + long(15) + "=1":               "",
		long(242) + "@b=1":                   "",
		long(257) + "=1":                     "",
		"a=1=2":                              "",
		"a=\x7f":                             "",
		"a=ü":                                "",
		"a=1\r\nX-Evil: 1":                   "",
		"a=" + long(256):                     "a=" + long(256),
		"a=" + long(257):                     "",
		"a=" + long(250) + ",b=" + long(257): "",
		"a=" + long(250) + ",b=" + long(250) + ",c=123": "a=" + long(250) + ",b=" + long(250) + ",c=123",
		"a=" + long(254) + ",b=" + long(252) + ",c=123": "", // 517 bytes
	} {
		parent, state := server.PassOn(http.Header{"Traceparent": {parentOn}, "Tracestate": strings.Split(sent, "|")})
		if state != want || parent != parentOn {
			t.Errorf("%.80q: got %.80q under %q, want %.80q", sent, state, parent, want)
		}
		if _, state = server.PassOn(http.Header{"Tracestate": strings.Split(sent, "|")}); state != "" {
			t.Errorf("%.80q without a traceparent: got %.80q, want none", sent, state)
		}
	}
}

// FuzzTraceContext holds the parser to its own grammar, to itself, and to OpenTelemetry's: what that one accepts is accepted with the
// same ids, and what is passed on it understands.
func FuzzTraceContext(f *testing.F) {
	f.Add(parentOn, "a=1,b=2")
	f.Add("cc"+parentOn[2:]+"-more", "0tenant@sys=x y, ,b=!")
	f.Add("ff"+parentOn[2:], "a=1,a=2")
	f.Fuzz(func(t *testing.T, parent, state string) {
		sent := http.Header{"Traceparent": {parent}, "Tracestate": {state}}
		gotParent, gotState := server.PassOn(sent)
		theirs := otelContext(sent)
		if gotParent == "" {
			if gotState != "" || theirs.IsValid() {
				t.Fatalf("%q, %q: got nothing but state %q; OpenTelemetry reads %v", parent, state, gotState, theirs)
			}
			return
		}
		got := http.Header{"Traceparent": {gotParent}}
		if gotState != "" {
			got["Tracestate"] = []string{gotState}
		}
		if !wellFormed(got) {
			t.Fatalf("%q, %q is passed on as %q", parent, state, got)
		}
		if p, s := server.PassOn(got); p != gotParent || s != gotState {
			t.Fatalf("%q, %q is passed on as %q, and that as %q, %q", parent, state, got, p, s)
		}
		read := otelContext(got)
		if !read.IsValid() || read.TraceID().String() != parent[3:35] || read.SpanID().String() != parent[36:52] {
			t.Fatalf("%q is passed on as %q, which OpenTelemetry reads as %v", parent, gotParent, read)
		}
		if theirs.IsValid() && theirs.IsSampled() != read.IsSampled() {
			t.Fatalf("%q is passed on as %q: another sampled flag", parent, gotParent)
		}
	})
}

// otelContext is what OpenTelemetry reads.
func otelContext(header http.Header) trace.SpanContext {
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), propagation.HeaderCarrier(header)))
}

// Where turns are not traced and a client sends no context, nothing is made.
func TestTrace_WithoutAContextCostsNothing(t *testing.T) {
	header := http.Header{"Content-Type": {"application/json"}}
	if n := testing.AllocsPerRun(100, func() { server.PassOn(header) }); n != 0 {
		t.Errorf("got %v allocations, want none", n)
	}
}
