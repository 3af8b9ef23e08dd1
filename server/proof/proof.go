package proof

import (
	"context"

	"carryover/convcache"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
)

// Proof is one way to show how much of a ticket a request may use. It is safe for concurrent use.
type Proof interface {
	// Name returns the name that a hit shows: "tokens" or "history".
	Name() string
	// Admit begins the proof of a request. why says why the request takes no part in reuse, "" if it may.
	Admit(req *body.Request) (turn Turn, why string)
}

// Turn is the proof of one turn. It belongs to the turn's goroutine.
type Turn interface {
	// Opens reports whether the request begins its conversation, so that no ticket can cover a part of it.
	Opens() bool
	// Begin begins an attempt. lacks says what is missing for any proof on these engines, "" for nothing; see the constants Lacks….
	Begin(ctx context.Context, a Attempt) (lacks string)
	// Look prepares for Offer. miss is the reason why this request can use no branch at all, "" for none.
	Look(ctx context.Context) (miss string)
	// Offer returns how much of a branch this request may use. It is called after Look.
	Offer(b convcache.Branch) convcache.Offer
	// Seal adds to the ticket of a finished answer the digest or chain that a later request has to match. If that is impossible, it returns
	// why: "ineligible_…".
	Seal(e Ending, ticket *convcache.Ticket) (why string)

	// IDs returns the ids of the attempt, nil if its legs compute no ids that were compared.
	IDs() *IDs
	// Reply returns the collector of the answer's content, nil if the proof does not need it.
	Reply() *Reply
	// Drop releases the request and everything that was read from it, except what Seal needs: a stream of minutes must not keep its prompt
	// in memory. After Drop only the answer is processed.
	Drop()
}

// Attempt is one attempt of a turn: one pair of engines for its legs.
type Attempt struct {
	TurnID          string // for the log
	Prefill, Decode *fleet.Incarnation
	Authorization   string // the client's credential, if it is forwarded
	// Background runs work that the legs do not wait for.
	Background func(work func())
}

// Ending says how an answer ended, and what decode says that it holds.
type Ending struct {
	Decode     *fleet.Incarnation
	Params     upstream.TicketParams
	Finish     string // finish_reason
	StopReason bool   // a stop string or stop token ended it
	// The token counts in decode's usage, -1 for each that it does not report.
	PromptTokens, CompletionTokens int
}

// What an attempt lacks for a proof.
const (
	LacksIncarnation = "incarnation" // the incarnation of an engine is not known
	LacksProbe       = "probe"       // an engine has not shown that it uses the ids that it is sent
	LacksIDs         = "ids"         // an engine does not report ids
	// For a prompt whose ids only a render endpoint returns (vLLM --enable-scale-out, or --render):
	LacksRender = "render" // there is no such endpoint, or it has not answered

	LacksShape = "shape" // /tokenize has not shown that it returns what prefill renders for such requests, or returns something else
)

// Unproven returns the reason of a miss for a turn that lacks something.
func Unproven(lacks string) string { return "ineligible_unproven;why=" + lacks }

// The reasons why Look finds that nothing can be used.
const (
	MissTokenizeFailed = "tokenize_failed"
	MissNotAppendOnly  = "template_not_append_only"
)

// ineligible returns the word for why an answer leaves no ticket.
func ineligible(why string) string { return "ineligible_" + why }
