package server

import (
	"errors"
	"fmt"
	"time"

	"carryover/upstream"
)

// Record is everything that is known of a turn when it has ended. It has neither prompts nor ids in clear.
type Record struct {
	Turn string // X-Request-Id
	Asked

	Path    Path
	Reuse   Reuse
	Stored  string // "yes", or why the answer left no ticket; "" if none was asked for
	Legs    []LegRecord
	Retries int
	Answer  AnswerRecord
	Status  int    // what the client got; 499 if it had gone before it got any
	Code    string // of the error that the client got, "" for none

	Times
	Err error // how the turn failed, nil if it did not
}

// Asked is what a turn asked for.
type Asked struct {
	API          upstream.API
	Model        string
	Conversation string // the first characters of its keyed hash, "" without one
	Source       string // where the conversation's id was found, "" without one
}

// Times are those of a turn as a whole.
type Times struct {
	Began  time.Time
	Queued time.Duration // in all waits for a place together
	Lookup time.Duration // of the last attempt, until it was known what is reused, without waits for a place
	TTFT   time.Duration // from Began to the first byte for the client, 0 if there was none
	Took   time.Duration
}

// Reuse is what a turn reused, and why nothing.
type Reuse struct {
	Off      bool   // the client wanted none
	Hit      bool   // a ticket was used
	Reason   Reason // why none was
	Proof    string // what showed how much of it could be used
	Offered  int    // how many of its tokens that was
	Cached   int    // prompt tokens that prefill took from caches, its own included, -1 if it does not tell
	CaughtUp time.Time
	// Saved is how long prefill would have computed for what was reused, at the speed that was known of it; 0 if none was.
	Saved time.Duration
	// Differs says where a rewritten history differs from what the conversation's tickets cover, such as "messages[3].content";
	// "" if nothing was rewritten or it is not known.
	Differs string
}

// LegRecord is one leg that was sent.
type LegRecord struct {
	Role     upstream.Role
	Instance string
	Start    string // of the engine, as far as it was known
	Began    time.Time
	Took     time.Duration // until its answer, of a decode leg until its headers
	Err      error
}

// AnswerRecord is what decode said, and what the client got of it.
type AnswerRecord struct {
	Events, Bytes int64
	Buffered      bool   // the stream was made of a whole answer
	Fault         int    // status of the error that decode told within its answer, 0 for none
	Finish        string // finish_reason, "" if it was not seen
	// What decode's usage counts, -1 where it does not tell or was not read.
	PromptTokens, CompletionTokens int
}

// Leg returns the last leg of a role, the zero value if there was none.
func (r *Record) Leg(role upstream.Role) LegRecord {
	for i := len(r.Legs) - 1; i >= 0; i-- {
		if r.Legs[i].Role == role {
			return r.Legs[i]
		}
	}
	return LegRecord{}
}

// PrefillTook is how long the client has waited for prefill, all attempts together.
func (r *Record) PrefillTook() (took time.Duration) {
	for i := range r.Legs {
		if r.Legs[i].Role == upstream.RolePrefill {
			took += r.Legs[i].Took
		}
	}
	return took
}

// sent notes that a leg is about to be sent; ended, how that went.
func (r *Record) sent(leg upstream.Leg, start string) (ended func(took time.Duration, err error)) {
	at := len(r.Legs)
	r.Legs = append(r.Legs, LegRecord{Role: leg.Instance.Role, Instance: leg.Instance.Name, Start: start, Began: time.Now()})
	return func(took time.Duration, err error) { r.Legs[at].Took, r.Legs[at].Err = took, err }
}

// Header is the value of X-KV-Reuse at a moment, which the age of a ticket counts to.
func (r *Reuse) Header(now time.Time) string {
	switch outcome, reason := r.Outcome(); outcome {
	case "off":
		return outcome
	case "miss":
		return "miss;reason=" + reason
	}
	age := max(0, upstream.Elapsed(r.CaughtUp, now))
	s := fmt.Sprintf("hit;tokens=%d;age=%.1f;proof=%s", r.Offered, age.Seconds(), r.Proof)
	if r.Cached >= 0 {
		s += fmt.Sprintf(";confirmed=%d", r.Cached)
	}
	return s
}

// Outcome is "hit", "miss" or "off", and the reason of a miss.
func (r *Reuse) Outcome() (outcome, reason string) {
	switch {
	case r.Off:
		return "off", ""
	case r.Hit:
		return "hit", ""
	case r.Reason == "":
		return "miss", string(ReasonBypass)
	}
	return "miss", string(r.Reason)
}

// missed says that nothing is reused after all.
func (r *Reuse) missed(why Reason) { r.Hit, r.Reason = false, why }

// Aborted reports whether the answer broke off after the client had seen part of it.
func (r *Record) Aborted() bool {
	var abort *abortError
	return errors.As(r.Err, &abort)
}

// Observer is told of each turn at its end, on the turn's goroutine. It must not block, and may keep a copy of the record
// whose Legs it does not change.
type Observer func(*Record)
