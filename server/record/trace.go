package record

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"

	"carryover/upstream"
)

// Trace is a turn's place in a trace (W3C Trace Context); the zero value is none. It comes only from the client's traceparent and tracestate (package
// request), and engines get only what was parsed from them. Baggage is free text and is not forwarded.
type Trace struct {
	ID      [16]byte
	Parent  [8]byte // the client's span, zero if it sent no context
	Span    [8]byte // the turn's span; zero if turns are not traced, and then the client's context is passed on unchanged
	Sampled bool    // the trace's spans are kept
	Random  bool    // the client says that its trace id is random (level 2)
	State   string  // the client's tracestate, "" for none
}

// Sample decides whether a turn's spans are kept. client is the client's context, or one with a new id and no parent.
type Sample func(client Trace) bool

// Recorded reports whether the turn's spans are kept.
func (t *Trace) Recorded() bool { return t.Sampled && t.Span != [8]byte{} }

// Shown returns the trace's id in hexadecimal, "" if no spans are kept: nothing could be found under the id.
func (t *Trace) Shown() string {
	if !t.Recorded() {
		return ""
	}
	return hex.EncodeToString(t.ID[:])
}

// NewSpanID returns a random span id.
func NewSpanID() (id [8]byte) {
	_, _ = rand.Read(id[:]) // never fails since Go 1.24
	return id
}

// Traced gives a leg its place in the trace and returns its span, zero if turns are not traced.
func (t *Trace) Traced(leg *upstream.Leg) (span [8]byte) {
	if t.Span != span {
		span = NewSpanID()
	}
	t.under(leg, span)
	return span
}

// under sets the context that a leg carries. Its parent is a span of this turn, or the client's if turns are not traced.
func (t *Trace) under(leg *upstream.Leg, span [8]byte) {
	if t.ID != [16]byte{} {
		leg.Traceparent, leg.Tracestate = t.traceparent(cmp.Or(span, t.Parent)), t.State
	}
}

// The known flags of a traceparent. All others are sent as zero (Trace Context level 2, 3.2.2.5).
const (
	flagSampled = 1 << 0
	flagRandom  = 1 << 1
)

// TraceparentLength is the length of version 00; later versions may append more.
const TraceparentLength = len("00-0123456789abcdef0123456789abcdef-0123456789abcdef-00")

func (t *Trace) traceparent(parent [8]byte) string {
	var flags [1]byte
	if t.Sampled {
		flags[0] |= flagSampled
	}
	if t.Random {
		flags[0] |= flagRandom
	}
	b := append(make([]byte, 0, TraceparentLength), "00-"...)
	b = append(hex.AppendEncode(b, t.ID[:]), '-')
	b = append(hex.AppendEncode(b, parent[:]), '-')
	return string(hex.AppendEncode(b, flags[:]))
}
