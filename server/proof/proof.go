package proof

import (
	"context"

	"carryover/convcache"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// Proof is one way to show how much of a ticket a request may use. It is safe for concurrent use.
type Proof interface {
	// Name is what a hit shows: "tokens" or "history".
	Name() string
	// Admit begins the proof of a request. why says why the request takes no part in reuse, "" if it may.
	Admit(req *upstream.Request) (turn Turn, why string)
}

// Turn is the proof of one turn. It belongs to the turn's goroutine.
type Turn interface {
	// Opens reports whether nothing that is kept can be covered by the request, because it begins its conversation.
	Opens() bool
	// Begin begins a passage through the legs. lacks says what is missing for any proof on these engines, "" for
	// nothing; see the constants Lacks….
	Begin(ctx context.Context, a Attempt) (lacks string)
	// Predict says what Begin and Look would say, as far as that is known without asking an engine, in place of both.
	Predict(a Attempt) Prediction
	// Look gets ready for Offer; miss is the reason for which this request can use no branch at all, "" for none.
	Look(ctx context.Context) (miss string)
	// Offer says how much of a branch this request may use. It is called after Look.
	Offer(b convcache.Branch) convcache.Offer
	// Seal adds to the ticket of a finished answer what a later request has to show, or says why nothing can be
	// shown: "ineligible_…".
	Seal(e Ending, ticket *convcache.Ticket) (why string)

	// IDs are those of the attempt, nil where legs compute none that were compared.
	IDs() *IDs
	// Reply gathers what the answer says, nil where the proof does not need it.
	Reply() *Reply
	// Drop lets go of the request and of what was read of it, but for what Seal needs: a stream of minutes must not hold
	// its prompt. Nothing but the answer is asked of the turn afterwards.
	Drop()
}

// Attempt is one passage of a turn through the legs.
type Attempt struct {
	TurnID          string // for the log
	Prefill, Decode *fleet.Incarnation
	Authorization   string // the client's credential, if it is forwarded
	// Background runs work that the legs do not wait for.
	Background func(work func())
}

// Ending is how an answer ended, and what decode says that it holds.
type Ending struct {
	Decode     *fleet.Incarnation
	Kept       upstream.Kept
	Finish     string // finish_reason
	StopReason bool   // a stop string or stop token ended it
	// What decode's usage counts, -1 where it does not tell.
	PromptTokens, CompletionTokens int
}

// What an attempt lacks for a proof.
const (
	LacksStart = "start" // a start of an engine is not known
	LacksProbe = "probe" // an engine has not shown that it uses the ids that it is sent
	LacksIDs   = "ids"   // an engine does not tell ids
	// A prompt whose ids only a render endpoint tells (vLLM --enable-scale-out, or --render).
	LacksRender   = "render"        // there is none
	LacksRendered = "render_failed" // it has not answered

	LacksShape = "shape" // /tokenize has not shown, or does not, what prefill renders of such requests
)

// Unproven is the reason of a turn that lacks something.
func Unproven(lacks string) string { return "ineligible_unproven;why=" + lacks }

// The reasons for which Look finds that nothing can be used.
const (
	MissTokenizeFailed = "tokenize_failed"
	MissNotComparable  = "ineligible_not_comparable"
	MissNotAppendOnly  = "template_not_append_only"
)

// ineligible spells why an answer leaves no ticket.
func ineligible(why string) string { return "ineligible_" + why }
