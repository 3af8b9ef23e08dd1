package record

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"strings"

	"carryover/upstream"
)

// Trace is a turn's place in a trace (W3C Trace Context). The zero value means that there is none. It is read from the client's traceparent
// and tracestate alone, and engines get only what was parsed from them. Baggage, which is free text, is not forwarded.
type Trace struct {
	ID      [16]byte
	Parent  [8]byte // the client's span, zero if it has sent no context
	Span    [8]byte // the turn's own span; zero if turns are not traced, and the client's context is then passed on unchanged
	Sampled bool    // spans of the trace are kept
	Random  bool    // the client says that its trace id is random (level 2)
	State   string  // the client's tracestate, "" for none
}

// Sample decides whether spans of a turn are kept. Its argument is the context that the client sent, or one with a new id and no parent.
type Sample func(client Trace) bool

// Recorded reports whether spans of the turn are made and kept.
func (t *Trace) Recorded() bool { return t.Sampled && t.Span != [8]byte{} }

// Shown returns the trace's id in hexadecimal, "" if no spans are kept, because nothing could be found under the id.
func (t *Trace) Shown() string {
	if !t.Recorded() {
		return ""
	}
	return hex.EncodeToString(t.ID[:])
}

// NewTrace reads a client's context. If turns are traced, the turn gets a span in the trace; sample is nil if they are not.
func NewTrace(header http.Header, sample Sample) Trace {
	t := parseTrace(header)
	if sample == nil {
		return t
	}
	return t.takePart(sample)
}

// takePart gives the turn a span in the client's trace, or in a new trace if the client has sent none.
func (t Trace) takePart(sample Sample) Trace {
	if t.ID == [16]byte{} {
		_, _ = rand.Read(t.ID[:]) // never fails since Go 1.24
	}
	t.Sampled = sample(t)
	t.Span = newSpanID()
	return t
}

func newSpanID() (id [8]byte) {
	_, _ = rand.Read(id[:]) // never fails since Go 1.24
	return id
}

// Traced gives a leg its place in the trace and returns the leg's span, zero if turns are not traced.
func (t *Trace) Traced(leg *upstream.Leg) (span [8]byte) {
	if t.Span != span {
		span = newSpanID()
	}
	t.under(leg, span)
	return span
}

// Joins puts a leg that gets no span of its own under the turn's span.
func (t *Trace) Joins(leg *upstream.Leg) { t.under(leg, t.Span) }

// under writes the context that a leg carries. If turns are not traced, that is the client's context.
func (t *Trace) under(leg *upstream.Leg, parent [8]byte) {
	if t.ID == [16]byte{} {
		return
	}
	if parent == [8]byte{} {
		parent = t.Parent
	}
	leg.Traceparent, leg.Tracestate = t.traceparent(parent), t.State
}

// The flags that are known. All others are sent as zero (Trace Context level 2, 3.2.2.5).
const (
	flagSampled = 1 << 0
	flagRandom  = 1 << 1
)

// traceparentLength is the length of version 00; later versions may append more.
const traceparentLength = len("00-0123456789abcdef0123456789abcdef-0123456789abcdef-00")

// traceparent returns the context with this parent, as version 00.
func (t *Trace) traceparent(parent [8]byte) string {
	var flags [1]byte
	if t.Sampled {
		flags[0] |= flagSampled
	}
	if t.Random {
		flags[0] |= flagRandom
	}
	b := append(make([]byte, 0, traceparentLength), "00-"...)
	b = append(hex.AppendEncode(b, t.ID[:]), '-')
	b = append(hex.AppendEncode(b, parent[:]), '-')
	return string(hex.AppendEncode(b, flags[:]))
}

// parseTrace reads a client's context. An invalid traceparent is treated as if there were none; an invalid tracestate is dropped without
// the rest.
func parseTrace(header http.Header) (t Trace) {
	values := header["Traceparent"]
	if len(values) != 1 { // with several, nothing tells which of them a hop has added
		return Trace{}
	}
	if !t.parse(values[0]) {
		return Trace{}
	}
	t.State = parseTracestate(header["Tracestate"])
	return t
}

// parse reads a traceparent. In versions above 00 it reads only the part that version 00 defines, because every version promises to begin
// with it. Version ff is invalid.
func (t *Trace) parse(s string) bool {
	var version, flags [1]byte
	switch {
	case len(s) < traceparentLength, s[2] != '-', s[35] != '-', s[52] != '-':
		return false
	case !unhex(version[:], s[:2]), !unhex(t.ID[:], s[3:35]), !unhex(t.Parent[:], s[36:52]), !unhex(flags[:], s[53:55]):
		return false
	case version[0] == 0xff, version[0] == 0 && len(s) > traceparentLength, len(s) > traceparentLength && s[traceparentLength] != '-':
		return false
	case t.ID == [16]byte{}, t.Parent == [8]byte{}:
		return false
	}
	t.Sampled, t.Random = flags[0]&flagSampled != 0, flags[0]&flagRandom != 0
	return true
}

// unhex reads hexadecimal digits, in lower case only, as the grammar requires.
func unhex(to []byte, s string) bool {
	if strings.ContainsAny(s, "ABCDEF") {
		return false
	}
	_, err := hex.Decode(to, []byte(s))
	return err == nil
}

// Bounds of a tracestate. Level 1 requires that at least 512 bytes are passed on, and allows at most 32 members. A longer tracestate is
// dropped.
const (
	maxTracestate        = 512
	maxTracestateMembers = 32
)

// parseTracestate returns the members of a tracestate in their order, separated by commas only. It returns "" if the tracestate breaks the
// grammar or a bound.
func parseTracestate(values []string) string {
	var length int
	for _, v := range values {
		if length += len(v) + 1; length > maxTracestate+1 {
			return ""
		}
	}
	var members []string
	keys := map[string]bool{}
	for _, v := range values {
		for member := range strings.SplitSeq(v, ",") {
			member = strings.Trim(member, " \t")
			if member == "" { // the grammar allows empty members, which carry nothing
				continue
			}
			key, value, ok := strings.Cut(member, "=")
			if !ok || !isStateKey(key) || !isStateValue(value) || keys[key] || len(members) == maxTracestateMembers {
				return ""
			}
			keys[key] = true
			members = append(members, member)
		}
	}
	return strings.Join(members, ",")
}

// isStateKey checks a key of level 1: a name of up to 256 characters, or a tenant of up to 241 and a system of up to 14.
func isStateKey(key string) bool {
	tenant, system, multi := strings.Cut(key, "@")
	if !multi {
		return len(key) <= 256 && isStateName(key, false)
	}
	return len(tenant) <= 241 && isStateName(tenant, true) && len(system) <= 14 && isStateName(system, false)
}

// isStateName checks the characters of a name. It begins with a letter, or, if digit is set, with a letter or a digit.
func isStateName(name string, digit bool) bool {
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z':
		case '0' <= c && c <= '9' && (i > 0 || digit):
		case i > 0 && strings.IndexByte("_-*/", c) >= 0:
		default:
			return false
		}
	}
	return name != ""
}

// isStateValue checks a value: up to 256 printable ASCII characters without comma and equals sign, and no space at the end.
func isStateValue(value string) bool {
	for i := range len(value) {
		if c := value[i]; c < ' ' || c > '~' || c == ',' || c == '=' {
			return false
		}
	}
	return value != "" && len(value) <= 256 && value[len(value)-1] != ' '
}
