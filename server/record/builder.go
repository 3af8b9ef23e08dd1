package record

import (
	"net/http"
	"time"

	"carryover/upstream"
	"carryover/upstream/body"
)

// Builder makes the record of a turn out of what the steps of the turn report. Only the turn's own goroutine uses it. It must not be
// copied once a leg has been sent.
type Builder struct {
	turn Turn
}

// NewBuilder returns the builder of a turn.
func NewBuilder(id string, api body.API, trace Trace, began time.Time) Builder {
	return Builder{turn: Turn{
		Turn: id, Asked: Asked{API: api}, Trace: trace, Times: Times{Began: began},
		Reuse: Reuse{Cached: -1}, Answer: Answer{PromptTokens: -1, CompletionTokens: -1, CachedTokens: -1},
	}}
}

// ID returns the turn's id, which is the client's X-Request-Id if that has a safe form.
func (b *Builder) ID() string { return b.turn.Turn }

// Times returns the turn's times so far, which the caller must not change.
func (b *Builder) Times() *Times { return &b.turn.Times }

// From records whom the request came from: the address and the tenant, as logs may name them.
func (b *Builder) From(client, tenant string) { b.turn.Client, b.turn.Tenant = client, tenant }

// Asks records the model that the client has named, the hash of the conversation, where its id was found, and the
// keyed hash of the id that the client sent.
func (b *Builder) Asks(model, conversation, source string, id [8]byte) {
	b.turn.Model, b.turn.Conversation, b.turn.Source, b.turn.ID = model, conversation, source, id
}

// Uncached records an estimate of the prompt's tokens that are in no cache.
func (b *Builder) Uncached(tokens int) { b.turn.Path.Tokens = tokens }

// Disaggregate records that prefill and decode serve the attempt.
func (b *Builder) Disaggregate() { b.turn.Path.Way, b.turn.Path.Reason = WayPrefillDecode, "" }

// Alone records that decode serves the attempt alone, and why.
func (b *Builder) Alone(why string) { b.turn.Path.Way, b.turn.Path.Reason = WayDecodeOnly, why }

// Reuses records what the attempt reuses, or why it reuses nothing.
func (b *Builder) Reuses(reuse Reuse) { b.turn.Reuse = reuse }

// Follows records what the look-up of an attempt has shown: whether the turn goes on with a conversation, and with an answer that was released.
func (b *Builder) Follows(reuse Reuse) {
	b.turn.Reuse.Continues, b.turn.Reuse.Released = reuse.Continues, reuse.Released
}

// Cached records how many tokens of the prompt prefill took from caches, -1 if it does not tell.
func (b *Builder) Cached(tokens int) { b.turn.Reuse.Cached = tokens }

// Retried records that another attempt begins.
func (b *Builder) Retried() { b.turn.Retries++ }

// Joins puts a leg that has no place in the record under the turn's span.
func (b *Builder) Joins(leg *upstream.Leg) { b.turn.Trace.Joins(leg) }

// Committed records that status 200 and the headers are about to be sent, and sets the headers that tell of the turn. whole says that all
// of the answer follows in one piece.
func (b *Builder) Committed(header http.Header, whole bool) {
	b.turn.End.Status = http.StatusOK
	if took := time.Since(b.turn.Began); whole {
		b.turn.Whole = took
	} else {
		b.turn.TTFT = took
	}
	setHeaders(header, &b.turn)
}

// Refused records the error that the client gets in place of an answer, and sets the headers that tell of the turn.
func (b *Builder) Refused(header http.Header, status int, code string) {
	b.turn.End.Status, b.turn.End.Code = status, code
	if status != StatusClientGone {
		setHeaders(header, &b.turn)
	}
}

// Broke records how an answer failed behind its beginning, and the code of that error.
func (b *Builder) Broke(err error, code string) { b.turn.End.Err, b.turn.End.Code = err, code }

// Answered records decode's answer.
func (b *Builder) Answered(answer Answer) { b.turn.Answer = answer }

// Chosen records what was chosen for the ticket that the answer left.
func (b *Builder) Chosen(keep Keep) { b.turn.End.Keep = keep }

// Stored records "yes" if a ticket was stored, or why the answer left none.
func (b *Builder) Stored(what string) { b.turn.Stored = what }

// End records how the turn failed, nil if it did not or that is recorded, and returns the record.
func (b *Builder) End(err error) *Turn {
	b.turn.Took = time.Since(b.turn.Began)
	if err != nil {
		b.turn.End.Err = err
	}
	return &b.turn
}
