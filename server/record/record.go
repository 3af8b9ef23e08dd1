// Package record describes a turn that has ended: its request, its path, what it reused or why not, its legs, its answer, its times and its failure.
// The turn's steps report to a [Builder], which makes the record ([Turn]). Observers read it: the log line (line.go), package journal, package
// telemetry and the operators' listener. [Counts] has what no turn's record has.
//
// The package imports only upstream, its requests and OpenTelemetry's trace context, and decides nothing. A record has no prompt, no answer and no
// conversation id in clear. The only text of a client's own is the model's name; [Asked.ModelShown] hides it if no engine is known to serve it.
package record

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"carryover/upstream"
	"carryover/upstream/body"
)

// Turn is the record of a turn that has ended.
type Turn struct {
	Turn string // X-Request-Id
	Asked
	Trace Trace

	Path    Path
	Reuse   Reuse
	Stored  string // "yes", or why the answer left no ticket; "" if the turn got no answer
	Keep    Keep
	Legs    []*Leg
	Retries int
	Answer  Answer

	Status int    // what the client got; 499 if it left before that
	Code   string // code of the error that the client got, or that broke its answer; "" for none
	Err    error  // the turn's failure, nil for none

	Began  time.Time
	Queued time.Duration // all waits for slots
	Lookup time.Duration // of the last attempt, until the decision on reuse, without waits for slots
	TTFT   time.Duration // of a stream, from Began to the client's first byte; 0 if there was none
	// Whole is the time from Began until the client got its answer in one piece, 0 for a stream. A stream that was made from a whole answer counts here,
	// too: its first token came with the last.
	Whole time.Duration
	Took  time.Duration
}

// Reuse is what a turn reused, or why it reused nothing.
type Reuse struct {
	Off bool // the client wanted no reuse
	// Continues says that the turn goes on with a conversation: the request has an answer of the assistant, or the store has something of the
	// conversation, or had it until it expired.
	Continues bool
	Hit       bool   // a ticket was used, or prefill found KV that was handed back
	Reason    Reason // why no ticket was used, or why a hit saved nothing; else ""
	// Prefix is how many prompt tokens prefill's own caches had, if the turn is no hit; 0 for less than a block.
	Prefix  int
	Proof   string // the proof that decided how much could be used
	Offered int    // how many tokens of the ticket could be used
	Cached  int    // prompt tokens that prefill took from caches, its own included; -1 if it does not report them
	// Read is how many prompt tokens reuse spared prefill: those that it found beyond what it had by itself. If it does not report what it found, Read
	// is all that was offered.
	Read      int
	FreshAsOf time.Time
	// Saved is prefill's time to compute Read tokens, at its last known speed.
	Saved time.Duration
	// Differs says where a rewritten history differs from the conversation's tickets, such as "messages[3]"; "" if nothing was rewritten, or unknown.
	Differs string
}

// Keep is the choice for the answer's ticket.
type Keep struct {
	What string        // ticket if a turn may use it for a while, hand_back or release if that happens at once; "" without a ticket
	For  time.Duration // how long it waits for a turn
	Took time.Duration // until the store had it, 0 if it is not stored
}

// Leg is a leg that was sent.
type Leg struct {
	Role        upstream.Role
	Instance    string
	Incarnation string       // the engine's incarnation, as far as known
	Attempt     int          // 0 for the first
	Span        trace.SpanID // the client's if turns are not traced
	Began       time.Time
	Took        time.Duration // until its answer; of a decode leg until its headers
	First       time.Duration // of a decode leg until its answer began, 0 if it did not
	Whole       time.Duration // until its end; of a decode leg with the stream
	Err         error
}

// Answer describes decode's answer, and what the client got of it.
type Answer struct {
	Events, Bytes int64
	Finish        string // finish_reason, cut if it is long; "" if none was seen
	// By decode's usage; -1 if it does not report them, or was not read.
	PromptTokens, CompletionTokens int
	// CachedTokens are the prompt tokens from caches by decode's usage: prefill's number, if prefill told decode. It is -1 as above.
	CachedTokens int
}

// Leg returns the last leg of a role, the zero value if there was none.
func (r *Turn) Leg(role upstream.Role) Leg {
	for _, leg := range slices.Backward(r.Legs) {
		if leg.Role == role {
			return *leg
		}
	}
	return Leg{}
}

// PrefillTook returns how long the client has waited for prefill, in all attempts.
func (r *Turn) PrefillTook() (took time.Duration) {
	for _, leg := range r.Legs {
		if leg.Role == upstream.RolePrefill {
			took += leg.Took
		}
	}
	return took
}

// Outcome returns the outcome of reuse, and why it is no hit, or a hit that saved nothing.
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

// Observer gets each turn at its end, on the turn's goroutine. It must not block. It may keep a copy, but must not change the Legs.
type Observer func(*Turn)

// ModelShown returns the model's name for operators: "other" if no engine is known to serve it. Such a name is the client's own text, and may be as
// long as a body.
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
	Unserved     bool    // no engine is known to serve a model of that name, so it must not be shown
	Conversation string  // the first characters of its keyed hash, "" without one
	Source       string  // where the conversation's id was found, "" without one
	ID           [8]byte // keyed hash of the id that the client sent, zero without one; neither logged nor shown
	Client       string  // the address that the request came from, as logs may name it
	Tenant       string  // keyed hash of the tenant, "" if nobody is kept apart
}

// Path is the path of a turn: prefill and decode, or decode alone.
type Path struct {
	Way    string // "" if the turn ended before the choice
	Reason string // why decode serves alone, "" if it does not
	Tokens int    // estimate of the prompt's uncached tokens
}

// ErrClientGone says that a turn ended because its client had gone.
var ErrClientGone = errors.New("client gone")

// ErrAborted says that the answer broke off after the client had seen part of it. The connection must then end abnormally, because the client would
// take the truncated answer for a complete one.
var ErrAborted = errors.New("answer broke off")

// StatusClientGone is nginx's status for a client that closed the connection before its answer. Only logs show it.
const StatusClientGone = 499

// Blamed returns the instance whose leg failed the turn, and the failure's [upstream.Kind]; both are "" if no leg did.
func (r *Turn) Blamed() (instance, kind string) {
	if failed := upstream.LegOf(r.Err); failed != nil {
		return failed.Instance, failed.Kind.String()
	}
	return "", ""
}

// Aborted reports whether the answer broke off after the client had seen part of it.
func (r *Turn) Aborted() bool {
	return errors.Is(r.Err, ErrAborted)
}

// CodeClientGone is the code of a turn whose client left before its end.
const CodeClientGone = "client_gone"

// ClientLeft reports whether the client left before the turn's end.
func (r *Turn) ClientLeft() bool { return r.Code == CodeClientGone }

// FollowUp reports whether the turn could have reused something: it goes on with a conversation, and its client wants reuse. The share of hits is
// always hits divided by follow-ups. Every hit is a follow-up; a turn that opens its conversation is none.
func (r *Reuse) FollowUp() bool { return r.Continues && !r.Off }

// Prompt returns the prompt's tokens by decode's usage. Without usage it returns as many as are known to belong to the prompt.
func (r *Turn) Prompt() int { return max(r.Answer.PromptTokens, r.Reuse.Cached, r.Reuse.Offered) }

// TTFTWithout returns what the time to the first token of a hit would have been without reuse: longer by Reuse.Saved. It is 0 if the turn is no hit,
// the answer is whole, or the hit spared prefill tokens and prefill's speed was unknown.
func (r *Turn) TTFTWithout() time.Duration {
	if u := &r.Reuse; u.Hit && r.TTFT > 0 && (u.Saved > 0 || u.Read == 0) {
		return r.TTFT + u.Saved
	}
	return 0
}

// Counts are the events since the program started, and the tickets of now, that no turn's record has.
type Counts struct {
	Tickets int // of this replica in the store, as far as it knows
	Waiting int // tickets whose hand-back is due
	// Piggybacked are releases on legs of turns, Own those on legs of our own. A leg of our own that has failed tries once more.
	Piggybacked, Own Ends
	HandBacks        Ends
	// Stranded are hand-overs that no decode leg has taken.
	Stranded uint64
	// Quarantines are incarnations of prefill that this replica caught computing other ids than they were sent.
	Quarantines uint64
	// Shed are idle connections of clients that were closed to make room for others.
	Shed uint64
}

// Ends counts how attempts to free a ticket's blocks ended.
type Ends struct {
	Done     uint64 // the leg was answered
	Failed   uint64 // an engine may have seen the leg, and it failed
	Requeued uint64 // nothing of the leg was sent, or the engine refused it; the ticket waits again
}
