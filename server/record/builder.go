package record

import (
	"errors"
	"net/http"
	"time"

	"carryover/upstream"
	"carryover/upstream/body"
)

// Builder makes a turn's record from what the turn's steps report. They can't read it. Only the turn's goroutine uses it. Don't copy it after a leg.
type Builder struct {
	turn  Turn
	tried time.Time // when the attempt began, without its waits for slots
}

// NewBuilder returns the builder of a turn.
func NewBuilder(id string, api body.API, trace Trace, began time.Time) Builder {
	return Builder{turn: Turn{
		Turn: id, Asked: Asked{API: api}, Trace: trace, Times: Times{Began: began}, Legs: make([]Leg, 0, 2), // most turns have two
		Reuse: Reuse{Cached: -1}, Answer: Answer{PromptTokens: -1, CompletionTokens: -1, CachedTokens: -1},
	}}
}

// ID returns the turn's id: the client's X-Request-Id if that has a safe form.
func (b *Builder) ID() string { return b.turn.Turn }

// From records the client's address and the tenant, as logs may name them.
func (b *Builder) From(client, tenant string) { b.turn.Client, b.turn.Tenant = client, tenant }

// Asks records the model as the client named it, the conversation's hash, where its id was found, and the keyed hash of the client's id.
func (b *Builder) Asks(model, conversation, source string, id [8]byte) {
	b.turn.Model, b.turn.Conversation, b.turn.Source, b.turn.ID = model, conversation, source, id
}

// Uncached records an estimate of the prompt's uncached tokens.
func (b *Builder) Uncached(tokens int) { b.turn.Path.Tokens = tokens }

// Disaggregate records that prefill and decode serve the attempt.
func (b *Builder) Disaggregate() { b.turn.Path.Way, b.turn.Path.Reason = WayPrefillDecode, "" }

// Alone records that decode serves the attempt alone, and why.
func (b *Builder) Alone(why string) { b.turn.Path.Way, b.turn.Path.Reason = WayDecodeOnly, why }

// Reuses records what the attempt reuses, or why it reuses nothing.
func (b *Builder) Reuses(reuse Reuse) { b.turn.Reuse = reuse }

// Follows records what an attempt's look-up has shown: whether the turn goes on with a conversation.
func (b *Builder) Follows(reuse Reuse) {
	b.turn.Reuse.Continues = reuse.Continues
}

// Cached records how many prompt tokens prefill took from caches, -1 if it does not report them.
func (b *Builder) Cached(tokens int) { b.turn.Reuse.Cached = tokens }

// Retried records that another attempt begins.
func (b *Builder) Retried() { b.turn.Retries++ }

// Joins puts a leg without a place in the record under the turn's span.
func (b *Builder) Joins(leg *upstream.Leg) { b.turn.Trace.under(leg, b.turn.Trace.Span) }

// Committed records that status 200 and the headers are about to be sent, and sets the turn's headers. whole says that the answer is in one piece.
func (b *Builder) Committed(header http.Header, whole bool) {
	b.turn.End.Status = http.StatusOK
	if took := time.Since(b.turn.Began); whole {
		b.turn.Whole = took
	} else {
		b.turn.TTFT = took
	}
	setHeaders(header, &b.turn)
}

// Refused records the error that the client gets in place of an answer, and sets the turn's headers.
func (b *Builder) Refused(header http.Header, status int, code string) {
	b.turn.End.Status, b.turn.End.Code = status, code
	setHeaders(header, &b.turn)
}

// Broke records how an answer failed after its beginning, and the error's code.
func (b *Builder) Broke(err error, code string) { b.turn.End.Err, b.turn.End.Code = err, code }

// Answered records decode's answer.
func (b *Builder) Answered(answer Answer) { b.turn.Answer = answer }

// Chosen records the choice for the answer's ticket.
func (b *Builder) Chosen(keep Keep) { b.turn.End.Keep = keep }

// Stored records "yes" if a ticket was stored, or why the answer left none.
func (b *Builder) Stored(what string) { b.turn.Stored = what }

// End records how the turn failed, and returns the record. err is nil if the turn did not fail or the failure is recorded.
func (b *Builder) End(err error) *Turn {
	b.turn.Took = time.Since(b.turn.Began)
	if err != nil {
		b.turn.End.Err = err
	}
	return &b.turn
}

// SentLeg is a leg in the record of its turn.
type SentLeg struct {
	of *Turn
	at int
}

// Sent records that a leg is about to be sent, and gives it its span in the turn's trace.
func (b *Builder) Sent(leg *upstream.Leg, incarnation string) SentLeg {
	r := &b.turn
	at := len(r.Legs)
	r.Legs = append(r.Legs, Leg{
		Role: leg.Instance.Role, Instance: leg.Instance.Name, Incarnation: incarnation, Attempt: r.Retries, Span: r.Trace.Traced(leg), Began: time.Now(),
	})
	return SentLeg{r, at}
}

// Answered records how long the leg took to be answered, and its failure.
func (s SentLeg) Answered(took time.Duration, err error) {
	leg := &s.of.Legs[s.at]
	leg.Took, leg.Whole, leg.Err = took, took, err
}

// Began records that the answer has begun.
func (s SentLeg) Began() {
	leg := &s.of.Legs[s.at]
	leg.First = time.Since(leg.Began)
}

// Over records the end of an answer that follows the headers. It keeps a failure of this leg's engine, not one of the client or the other leg.
func (s SentLeg) Over(err error) {
	leg := &s.of.Legs[s.at]
	leg.Whole = time.Since(leg.Began)
	if failed, ok := errors.AsType[*upstream.LegError](err); ok && failed.Role == leg.Role {
		leg.Err = err
	}
}

// Tries records that an attempt begins with its look-up.
func (b *Builder) Tries() { b.tried = time.Now() }

// Waited records a wait for a slot.
func (b *Builder) Waited(waited time.Duration) {
	b.turn.Queued += waited
	b.tried = b.tried.Add(waited)
}

// LookedUp records that the attempt has decided what to reuse.
func (b *Builder) LookedUp() { b.turn.Lookup = time.Since(b.tried) }
