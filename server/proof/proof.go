package proof

import (
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// Attempt is one attempt of a turn: one pair of engines for its legs.
type Attempt struct {
	TurnID          string // for the log
	Prefill, Decode *fleet.Incarnation
	Authorization   string // the client's credential, if it is forwarded
	Account         string // whose request it is
	// Background runs work that the legs do not wait for.
	Background func(work func())
}

// Ending says how an answer ended, and what decode says that it holds.
type Ending struct {
	Decode *fleet.Incarnation
	Params upstream.TicketParams
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
)

// ineligible returns the word for why an answer leaves no ticket.
func ineligible(why string) string { return "ineligible_" + why }
