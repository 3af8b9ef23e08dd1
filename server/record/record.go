package record

import (
	"errors"
	"fmt"
	"time"

	"carryover/upstream"
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
	Name    Name // what is wrong with the conversation's id, "" if that is not known
	// Released says that the answer that the turn continues was released at once, because such answers were not continued.
	Released bool
}

// Name says what is wrong with a conversation's id.
type Name string

// The faults of ids.
const (
	NameUnseen Name = "unseen"
	NameShared Name = "shared"
)

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

// SentLeg is a leg in the record of its turn.
type SentLeg struct {
	of *Turn
	at int
}

// Sent notes that a leg is about to be sent, and gives the leg its span in the turn's trace.
func (b *Builder) Sent(leg *upstream.Leg, incarnation string) SentLeg {
	r := &b.turn
	at := len(r.Legs)
	if r.Legs == nil {
		r.Legs = make([]Leg, 0, 2) // most turns have as many
	}
	r.Legs = append(r.Legs, Leg{
		Role: leg.Instance.Role, Instance: leg.Instance.Name, Incarnation: incarnation, Attempt: r.Retries, Span: r.Trace.Traced(leg), Began: time.Now(),
	})
	return SentLeg{r, at}
}

// Answered records how long the leg took to be answered, and its failure if it has one.
func (n SentLeg) Answered(took time.Duration, err error) {
	leg := &n.of.Legs[n.at]
	leg.Took, leg.Whole, leg.Err = took, took, err
}

// Began notes that the answer has begun.
func (n SentLeg) Began() {
	leg := &n.of.Legs[n.at]
	leg.First = time.Since(leg.Began)
}

// Over notes the end of an answer that comes behind the headers. Of what ended it the engine's failure is kept, and not that of the
// client or of the other leg.
func (n SentLeg) Over(err error) {
	leg := &n.of.Legs[n.at]
	leg.Whole = time.Since(leg.Began)
	if err == nil {
		return
	}
	var failed *upstream.LegError
	if errors.As(err, &failed) && failed.Role == leg.Role {
		leg.Err = err
	}
}

// Leg returns the last leg of a role, the zero value if there was none.
func (r *Turn) Leg(role upstream.Role) Leg {
	for i := len(r.Legs) - 1; i >= 0; i-- {
		if r.Legs[i].Role == role {
			return r.Legs[i]
		}
	}
	return Leg{}
}

// PrefillTook returns how long the client has waited for prefill, in all attempts together.
func (r *Turn) PrefillTook() (took time.Duration) {
	for i := range r.Legs {
		if r.Legs[i].Role == upstream.RolePrefill {
			took += r.Legs[i].Took
		}
	}
	return took
}

// Header returns the value of X-KV-Reuse. The age of a ticket in it counts to now.
func (r *Reuse) Header(now time.Time) string {
	outcome, reason := r.Outcome()
	switch outcome {
	case Off:
		return outcome
	case Prefix:
		return fmt.Sprintf("%s;tokens=%d%s", outcome, r.Prefix, r.why(reason))
	case Miss:
		return outcome + r.why(reason)
	}
	read, confirmed := "", ""
	if r.Cached >= 0 {
		read, confirmed = fmt.Sprintf(";read=%d", r.Read), fmt.Sprintf(";confirmed=%d", r.Cached)
	}
	age := max(0, upstream.Elapsed(r.FreshAsOf, now)).Seconds()
	return fmt.Sprintf("hit;tokens=%d%s;age=%.1f;proof=%s%s%s", r.Offered, read, age, r.Proof, confirmed, r.why(reason))
}

// why returns the members of X-KV-Reuse that say why a turn reused or saved nothing.
func (r *Reuse) why(reason string) (members string) {
	if reason != "" {
		members = ";reason=" + reason
	}
	if r.Differs != "" {
		members += ";differs=" + r.Differs
	}
	return members
}

// The outcomes of a turn's reuse.
const (
	Hit    = "hit"    // a ticket was used, or what was handed back was found
	Prefix = "prefix" // no hit, but prefill's own caches had at least one block of the prompt; the reason says why it is no hit
	Miss   = "miss"   // none of these; the reason says why
	Off    = "off"    // the client wanted none
)

// Outcome returns the outcome of the turn's reuse, and why it is no hit, or one that saved nothing.
func (r *Reuse) Outcome() (outcome, reason string) {
	switch {
	case r.Off:
		return Off, ""
	case r.Hit:
		return Hit, string(r.Reason)
	}
	outcome, reason = Miss, string(r.Reason)
	if r.Prefix > 0 {
		outcome = Prefix
	}
	if reason == "" {
		reason = string(ReasonBypass)
	}
	return outcome, reason
}

// Observer is told of each turn at its end, on the turn's goroutine. It must not block, and may keep a copy of the record
// whose Legs and Steps it does not change.
type Observer func(*Turn)
