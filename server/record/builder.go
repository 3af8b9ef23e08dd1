package record

import (
	"net/http"
	"time"

	"carryover/upstream"
)

// Builder makes a turn's record from what the turn's steps report. They can't read it. Only the turn's goroutine uses it.
type Builder struct {
	turn Turn
}

// NewBuilder returns the builder of a turn.
func NewBuilder(id string, trace Trace, began time.Time) Builder {
	return Builder{turn: Turn{
		Turn: id, Trace: trace, Began: began,
		Reuse: Reuse{Cached: -1}, Answer: Answer{PromptTokens: -1, CompletionTokens: -1, CachedTokens: -1},
	}}
}

// ID returns the turn's id: the client's X-Request-Id if that has a safe form.
func (b *Builder) ID() string { return b.turn.Turn }

// Asks records what the turn asks for, as far as that is known.
func (b *Builder) Asks(asked Asked) { b.turn.Asked = asked }

// Waited records how long the turn has waited for slots until now.
func (b *Builder) Waited(queued time.Duration) { b.turn.Queued = queued }

// Looked records how long the attempt took to decide what it reuses, without waits for slots.
func (b *Builder) Looked(took time.Duration) { b.turn.Lookup = took }

// Takes records the attempt's path: why decode serves it alone, "" if it does not, and an estimate of the prompt's uncached tokens.
func (b *Builder) Takes(alone string, uncached int) {
	b.turn.Path = Path{WayPrefillDecode, alone, uncached}
	if alone != "" {
		b.turn.Path.Way = WayDecodeOnly
	}
}

// Reuses records what the attempt reuses, or why it reuses nothing.
func (b *Builder) Reuses(reuse Reuse) { b.turn.Reuse = reuse }

// Retried records that another attempt begins.
func (b *Builder) Retried() { b.turn.Retries++ }

// Joins puts a leg, which may have no place in the record, under the turn's span.
func (b *Builder) Joins(leg *upstream.Leg) { leg.Trace = b.turn.Trace.Context }

// Committed records that status 200 and the headers are about to be sent, and sets the turn's headers. whole says that the answer is in one piece.
func (b *Builder) Committed(header http.Header, whole bool) {
	b.turn.Status = http.StatusOK
	if took := time.Since(b.turn.Began); whole {
		b.turn.Whole = took
	} else {
		b.turn.TTFT = took
	}
	setHeaders(header, &b.turn)
}

// Refused records how the turn failed and which error the client gets in place of an answer, and sets the turn's headers.
func (b *Builder) Refused(header http.Header, err error, status int, code string) {
	b.Broke(err, code)
	b.turn.Status = status
	setHeaders(header, &b.turn)
}

// Broke records how an answer failed after its beginning, and the error's code.
func (b *Builder) Broke(err error, code string) { b.turn.Err, b.turn.Code = err, code }

// Answered records decode's answer.
func (b *Builder) Answered(answer Answer) { b.turn.Answer = answer }

// Kept records "yes" if a ticket was stored, or why the answer left none, and the choice for the ticket.
func (b *Builder) Kept(stored string, keep Keep) { b.turn.Stored, b.turn.Keep = stored, keep }

// End returns the record of the turn, which ends now.
func (b *Builder) End() *Turn {
	b.turn.Took = time.Since(b.turn.Began)
	return &b.turn
}

// Sent records that a leg is about to be sent, and gives it its span in the turn's trace. The leg's methods record the rest of it.
func (b *Builder) Sent(leg *upstream.Leg, incarnation string) *Leg {
	b.Joins(leg)
	if turn := leg.Trace; turn.IsValid() && !turn.IsRemote() { // else turns are not traced, and engines get the client's context
		leg.Trace = turn.WithSpanID(NewSpanID())
	}
	sent := &Leg{
		Role: leg.Instance.Role, Instance: leg.Instance.Name, Incarnation: incarnation, Attempt: b.turn.Retries, Span: leg.Trace.SpanID(), Began: time.Now(),
	}
	b.turn.Legs = append(b.turn.Legs, sent)
	return sent
}

// Answered records that the leg is answered, or how it failed.
func (l *Leg) Answered(err error) {
	l.Took = time.Since(l.Began)
	l.Whole, l.Err = l.Took, err
}

// Begun records that the answer has begun, and returns how long after the leg.
func (l *Leg) Begun() time.Duration {
	l.First = time.Since(l.Began)
	return l.First
}

// Over records the end of an answer that follows the headers. It keeps a failure of this leg's engine, not one of the client or the other leg.
func (l *Leg) Over(err error) {
	l.Whole = time.Since(l.Began)
	if failed := upstream.LegOf(err); failed != nil && failed.Role == l.Role {
		l.Err = err
	}
}
