package proof

import (
	"context"

	"carryover/convcache"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
)

// History is the proof by messages, for engines without token support. A ticket is used whole, by a request whose messages begin with
// exactly what the ticket covers. It is the weaker proof, because equal text may still tokenise differently.
type History struct {
	Key convcache.HistoryKey // key of the digests
}

// Name returns "history".
func (History) Name() string { return "history" }

// Admit digests the request's messages. It refuses a request for which equal history is known to prove nothing.
func (p History) Admit(req *body.Request) (Turn, string) {
	if req.HidesReasoning() {
		return nil, "hidden_reasoning"
	}
	if raw, found := req.Member("chat_template"); found && string(raw) != "null" {
		return nil, "chat_template" // Look does not check whether the client's own template is append-only
	}
	scope := make([]convcache.Member, 0, 8)
	for _, m := range req.Prompt().Scope() {
		scope = append(scope, convcache.Member(m))
	}
	t := &historyTurn{api: req.API(), model: req.Model(), reply: Reply{api: req.API()}}
	if kwargs, found := req.Member("chat_template_kwargs"); found {
		t.kwargs = kwargs // refers to the request's memory, until Drop
	}
	var err error
	if req.API() == body.Text {
		prompt, ok := req.String("prompt")
		if !ok {
			return nil, "prompt_ids"
		}
		t.history, err = p.Key.TextHistory(scope, prompt)
	} else {
		t.history, err = p.Key.ChatHistory(scope, req.Messages())
	}
	if err != nil {
		return nil, "messages"
	}
	return t, ""
}

// historyTurn is a turn under the history proof.
type historyTurn struct {
	api     body.API
	model   string
	kwargs  []byte // arguments of the chat template, raw JSON, nil if absent
	history convcache.History
	reply   Reply

	prefill       *fleet.Incarnation
	authorization string
}

// Opens reports whether no message is a reply.
func (t *historyTurn) Opens() bool { return !t.history.HasAssistant() }

// Begin implements Turn. Without known incarnations nothing tells whether the blocks of a ticket are still there.
func (t *historyTurn) Begin(_ context.Context, a Attempt) (lacks string) {
	t.prefill, t.authorization = a.Prefill, a.Authorization
	if !a.Prefill.Known() || !a.Decode.Known() {
		return LacksIncarnation
	}
	return ""
}

// Look asks once for each incarnation of prefill, model and set of template arguments whether the chat template is append-only, so that a
// history can be a prefix at all. A question that failed proves nothing.
func (t *historyTurn) Look(ctx context.Context) (miss string) {
	if t.api != body.Chat {
		return ""
	}
	switch t.prefill.Template.AppendOnly(ctx, t.model, t.kwargs, t.authorization) {
	case facts.Yes:
		return ""
	case facts.No:
		return MissNotAppendOnly
	}
	return MissTokenizeFailed
}

// Offer offers all or nothing.
func (t *historyTurn) Offer(b convcache.Branch) convcache.Offer {
	if t.history.Extends(b) {
		return convcache.Offer{Tokens: b.Tokens, Whole: true}
	}
	return convcache.Offer{}
}

// Seal adds the digest of the history that a later request has to repeat.
func (t *historyTurn) Seal(e Ending, ticket *convcache.Ticket) (why string) {
	reply := t.reply.reply()
	facts := convcache.ReplyFacts{FinishReason: e.Finish, StopReason: e.StopReason, Reasoning: t.reply.reasoning}
	if why, ok := convcache.Eligible(reply, facts); !ok {
		return ineligible(why)
	}
	ticket.History.OK = true
	ticket.History.Digest, ticket.History.Covers = t.history.After(reply)
	return ""
}

// Drop lets go of the template's arguments.
func (t *historyTurn) Drop() { t.kwargs = nil }

// IDs returns nil: no ids were compared.
func (t *historyTurn) IDs() *IDs { return nil }

// Reply returns the collector of the answer, for its digest.
func (t *historyTurn) Reply() *Reply { return &t.reply }

var (
	_ Proof = History{}
	_ Turn  = (*historyTurn)(nil)
)
