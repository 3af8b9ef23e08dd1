// Package record is what is known of a turn that has ended: what it asked for, which way it went, what it reused or why it reused
// nothing, its legs, its answer, its times and how it failed. Steps of the turn report to a [Builder], which makes the record ([Turn]); observers read it: the log line
// (line.go), package journal, package telemetry and the operators' listener. Counts has what no turn's record has.
//
// The package imports upstream and its requests alone, and decides nothing. A record has no prompt, no answer, no
// conversation id in clear, and no text of a client's own, except the model's name, which [Asked.ModelShown] hides where no engine is
// known to serve it.
package record

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"carryover/upstream"
	"carryover/upstream/body"
)

// Turn is everything that is known about a turn when it has ended. It has no prompt and no conversation id in clear.
type Turn struct {
	Turn string // X-Request-Id
	Asked
	Trace Trace

	Path    Path
	Reuse   Reuse
	Stored  string // "yes", or why the answer left no ticket; "" if the turn got no answer
	Legs    []Leg
	Steps   []Step // in the order in which they ended; only traced turns have them
	Retries int
	Answer  Answer
	End     End

	Times
}

// End is how a turn ended, and what it left.
type End struct {
	Keep   Keep
	Status int    // what the client got; 499 if it had gone before it got any
	Code   string // code of the error that the client got, or that broke its answer; "" for none
	Err    error  // how the turn failed, nil if it did not
}

// Times are the times of a turn as a whole.
type Times struct {
	Began  time.Time
	Queued time.Duration // all waits for slots together
	Lookup time.Duration // in the last attempt, until the reuse was decided, without waits for slots
	TTFT   time.Duration // of a stream, from Began to its first byte for the client; 0 if there was none
	// Whole is the time from Began until the client got its answer in one piece, 0 for a stream. A stream that was made of a whole answer
	// counts here, too: its first token came with the last.
	Whole time.Duration
	Took  time.Duration
}

// Reuse is what a turn reused, or why it reused nothing.
type Reuse struct {
	Off bool // the client wanted no reuse
	// Continues says that the turn goes on with a conversation: the request has an answer of the assistant, or the store has, or had until
	// its time was over, something of the conversation.
	Continues bool
	Hit       bool   // a ticket was used, or what was handed back was found
	Reason    Reason // why no ticket was used, or why a hit saved nothing; "" for one that saved something
	// Prefix is how many tokens of the prompt prefill's own caches had, on a turn that is no hit; 0 for less than a block of prefill's.
	Prefix  int
	Proof   string // the proof that decided how much could be used
	Offered int    // how many tokens of the ticket could be used
	Cached  int    // prompt tokens that prefill took from caches, its own included, -1 if it does not report them
	// Read is how many prompt tokens prefill did not compute because of what was reused: what it found beyond what it had of the prompt by
	// itself. Where it does not tell what it found, it is taken to be all that was offered.
	Read      int
	FreshAsOf time.Time
	// Saved is how long prefill would have computed for as many tokens, at the speed that was known of it.
	Saved time.Duration
	// Differs says where a rewritten history differs from what the conversation's tickets cover, such as "messages[3]";
	// "" if nothing was rewritten or it is not known.
	Differs string
	Name    string // what is wrong with the conversation's id, "" if that is not known
	// Released says that the answer that the turn continues was released at once, because such answers were not continued.
	Released bool
}

// Keep is what was chosen for the ticket that the answer left.
type Keep struct {
	What string        // ticket if a turn may use it for a while, hand_back or release if that happens at once; "" without a ticket
	For  time.Duration // for how long it waits for a turn
}

// Leg is one leg that was sent.
type Leg struct {
	Role        upstream.Role
	Instance    string
	Incarnation string // the engine's incarnation, as far as it was known
	Attempt     int    // 0 for the first
	Span        [8]byte
	Began       time.Time
	Took        time.Duration // until its answer, of a decode leg until its headers
	First       time.Duration // of a decode leg until the first of its answer, 0 if there was none
	Whole       time.Duration // until its end, of a decode leg with the stream
	Err         error
}

// Answer is what is recorded of decode's answer and of what the client got.
type Answer struct {
	Events, Bytes int64
	Finish        string // finish_reason, its beginning if it is long; "" if it was not seen
	// What decode's usage counts, -1 where it does not tell or was not read.
	PromptTokens, CompletionTokens int
	// CachedTokens are the prompt tokens that decode's usage says came from caches: prefill's, where that told decode; -1 as above.
	CachedTokens int
}

// Leg returns the last leg of a role, the zero value if there was none.
func (r *Turn) Leg(role upstream.Role) Leg {
	for _, leg := range slices.Backward(r.Legs) {
		if leg.Role == role {
			return leg
		}
	}
	return Leg{}
}

// PrefillTook returns how long the client has waited for prefill, in all attempts together.
func (r *Turn) PrefillTook() (took time.Duration) {
	for _, leg := range r.Legs {
		if leg.Role == upstream.RolePrefill {
			took += leg.Took
		}
	}
	return took
}

// Outcome returns the outcome of the turn's reuse, and why it is no hit, or one that saved nothing.
func (r *Reuse) Outcome() (outcome, reason string) {
	switch reason = cmp.Or(r.Reason, ReasonBypass); {
	case r.Off:
		return Off, ""
	case r.Hit:
		return Hit, r.Reason
	case r.Prefix > 0:
		return Prefix, reason
	}
	return Miss, reason
}

// Observer is told of each turn at its end, on the turn's goroutine. It must not block, and may keep a copy of the record
// whose Legs and Steps it does not change.
type Observer func(*Turn)

// ModelShown returns the model's name as operators see it: "other" for a name that no engine is known to serve. Such a name is the client's
// own text, and may be as long as a body.
func (a *Asked) ModelShown() string {
	if a.Unserved {
		return "other"
	}
	return a.Model
}

// Asked is what a turn asked for.
type Asked struct {
	API          body.API
	Model        string  // as the client named it
	Unserved     bool    // no engine is known to serve a model of that name, which must then not be shown
	Conversation string  // the first characters of its keyed hash, "" without one
	Source       string  // where the conversation's id was found, "" without one
	ID           [8]byte // keyed hash of the id that the client sent, zero without one; neither logged nor shown
	Client       string  // the address that the request came from, as logs may name it
	Tenant       string  // keyed hash of who is kept apart from others, "" for nobody
}

// Path is the way that a turn went: prefill and decode, or decode alone.
type Path struct {
	Way    string // "" if the turn ended before a way was chosen
	Reason string // why decode serves alone, "" if it does not
	Tokens int    // estimate of the prompt's tokens that are in no cache
}

// ErrClientGone says that a turn ended because its client had gone.
var ErrClientGone = errors.New("client gone")

// StatusClientGone is nginx's status for a client that closed the connection before it had an answer. It appears only in logs.
const StatusClientGone = 499

// Blamed returns the instance whose leg failed the turn, and the kind of failure as [upstream.Kind] names it; both are "" if no leg failed
// it.
func (r *Turn) Blamed() (instance, kind string) {
	if failed, ok := errors.AsType[*upstream.LegError](r.End.Err); ok {
		return failed.Instance, failed.Kind.String()
	}
	return "", ""
}

// Aborted reports whether the answer broke off after the client had seen part of it.
func (r *Turn) Aborted() bool {
	_, aborted := errors.AsType[*AbortError](r.End.Err)
	return aborted
}

// ClientLeft reports whether the client had gone before the turn's end.
func (r *Turn) ClientLeft() bool {
	return r.End.Status == StatusClientGone || errors.Is(r.End.Err, ErrClientGone) || errors.Is(r.End.Err, context.Canceled)
}

// AbortError says that the answer broke off after the client had seen part of it. The connection must then end abnormally, because the
// client would take the truncated answer for a complete one.
type AbortError struct{ Err error }

// Error says what broke the answer.
func (e *AbortError) Error() string { return "answer broke off: " + e.Err.Error() }

// Unwrap returns what broke the answer.
func (e *AbortError) Unwrap() error { return e.Err }

// FollowUp reports whether the turn could have reused something: it goes on with a conversation, and its client wants reuse. The share of
// hits is hits divided by follow-ups, everywhere. Every hit is a follow-up; a turn that opens its conversation is none.
func (r *Reuse) FollowUp() bool { return r.Continues && !r.Off }

// Prompt returns how many tokens the prompt had, by decode's usage; where that was not read, as many as are known to be of it.
func (r *Turn) Prompt() int { return max(r.Answer.PromptTokens, r.Reuse.Cached, r.Reuse.Offered, 0) }

// HitTTFT returns the time to the first token of a hit, and what it would have been without reuse: longer by the time in which prefill
// would have computed the tokens that it did not (Reuse.Saved). ok is false for turns that are no hits, for whole answers, and for hits
// that spared prefill tokens while its speed was not known.
func (r *Turn) HitTTFT() (with, without time.Duration, ok bool) {
	ok = r.Reuse.Hit && r.TTFT > 0 && (r.Reuse.Saved > 0 || r.Reuse.Read == 0)
	return r.TTFT, r.TTFT + r.Reuse.Saved, ok
}

// Counts are events since the program started that no turn's record has.
type Counts struct {
	// Piggybacked are releases on legs of turns, Own those on legs of their own.
	Piggybacked, Own Releases
	HandBacks        HandBacks
	// Stranded are hand-overs that no leg to decode has taken.
	Stranded uint64
	// Choices are what was chosen for tickets at the ends of their answers.
	Choices TicketChoices
	// Quarantines are incarnations of prefill that this replica has found to compute other ids than they were sent.
	Quarantines uint64
	// Shed are idle connections of clients that made room for others.
	Shed uint64
}

// Releases counts how releases ended. Each attempt to release a ticket is counted once: in Sent, in Failed, or in Requeued if the ticket
// waits again.
type Releases struct {
	Sent     uint64 // the leg was answered
	Failed   uint64 // the leg may have been seen by an engine, and failed; a leg of our own tries once more
	Requeued uint64 // nothing of the leg was sent, or the engine refused it; the ticket waits again
}

// TicketChoices counts what was chosen for tickets at the ends of their answers.
type TicketChoices struct {
	Ticket   uint64 // a turn may use it for a while
	HandBack uint64 // it is handed back at once
	Release  uint64 // it is released at once
}

// HandBacks counts how hand-backs ended. A ticket that was sent is never handed back again.
type HandBacks struct {
	Done     uint64 // prefill has read the KV, and decode is free
	Failed   uint64 // the leg may have been seen by an engine, and failed; the blocks are released some seconds later
	Requeued uint64 // nothing of the leg was sent, or the engine refused it; it is tried again, or released
}
