package proof

import (
	"context"
	"errors"
	"log/slog"

	"carryover/convcache"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
)

// Tokens begins the proofs of turns. A ticket is used as far as the ids of the new prompt are the ids whose KV decode holds, and both legs
// then compute these very ids.
type Tokens struct {
	Chains     convcache.ChainKey // key of the chains of tickets
	Logger     *slog.Logger
	Background func(what, id string, work func()) // runs work that legs do not wait for
}

// Admit begins the proof of a request. why says why the request takes no part in reuse, "" if it may. Parity is learnt for each shape of
// requests. Ids do not show which images, audio and files they stand for, so a request with such content takes no part. The request is an
// account's; authorization is its client's credential, if that is forwarded.
func (p *Tokens) Admit(req *body.Request, account, authorization string) (_ *Turn, why string) {
	t := &Turn{proof: p, req: req, api: req.API(), account: account, authorization: authorization}
	if !t.api.Rendered() {
		if shape, comparable := req.FeatureSet(); comparable {
			t.shape = shape
		}
	}
	if t.shape == "" && !req.Prompt().Plain() {
		return nil, body.WhyContent
	}
	return t, ""
}

// Turn is the proof of one turn. It belongs to the turn's goroutine.
type Turn struct {
	proof *Tokens
	req   *body.Request // nil once the answer has begun
	api   body.API
	shape string // the shape for which parity is learnt, "" if not comparable

	account, authorization string

	// Of the last attempt:
	id              string // names the turn in the log
	prefill, decode *fleet.Incarnation
	ids             *IDs
	unrendered      string // why no ticket is used for a prompt that has to be rendered, as the reason of a miss; "" if it was rendered
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

// MissTokenizeFailed is the reason of a miss for a prompt whose ids /tokenize has not told.
const MissTokenizeFailed = "tokenize_failed"

// Begin begins an attempt on a pair. id names the turn in the log. It finds out whether both engines use forwarded ids, if legs carry ids in their params. In text completions the ids
// are the prompt, which every engine accepts. Each incarnation is asked once. For an API with a render endpoint the ids are requested here, and
// both legs carry them.
func (t *Turn) Begin(ctx context.Context, id string, prefill, decode *fleet.Incarnation) *IDs {
	t.ids.Discard() // left from an attempt that failed
	t.id, t.prefill, t.decode, t.ids, t.unrendered = id, prefill, decode, newIDs(t), ""
	lacks := t.worth(ctx, prefill)
	switch {
	case lacks == "":
		if lacks = t.worth(ctx, decode); lacks == "" && t.api.Rendered() {
			lacks = t.render(ctx)
		}
	case !decode.Known():
		lacks = LacksIncarnation
	}
	if lacks != "" {
		t.ids.lose(lacks)
	}
	return t.ids
}

// worth returns what one engine of a pair lacks, "" for nothing.
func (t *Turn) worth(ctx context.Context, incarnation *fleet.Incarnation) (lacks string) {
	switch {
	case !incarnation.Known():
		lacks = LacksIncarnation
	// Prefill computes a rendered prompt as a text completion, so its params have no ids.
	case t.api.ForwardsIDs() && (!t.api.Rendered() || incarnation != t.prefill) &&
		incarnation.Capability.Probe(ctx, t.api, t.authorization) != facts.Yes:
		lacks = LacksProbe
	default:
		return ""
	}
	if lacks == LacksIncarnation || !t.api.Rendered() { // one endpoint without support does not rule out the engine's other endpoints
		t.proof.note(incarnation, lacks)
	}
	return lacks
}

// render has the prompt rendered. An answer of the Responses API reports the ids of its prompt too. So without a render endpoint such a
// turn reuses nothing, but its own answer can be handed back.
func (t *Turn) render(ctx context.Context) (lacks string) {
	err := t.read(ctx)
	if err == nil {
		t.ids.fixed = true
		return ""
	}
	lacks = LacksRender
	if errors.Is(err, facts.ErrNotComparable) {
		lacks = LacksShape
	}
	if t.unrendered = Unproven(lacks); t.api == body.Responses {
		return ""
	}
	return lacks
}

// read has the prefill instance tell the ids of the prompt.
func (t *Turn) read(ctx context.Context) error {
	prompt, err := t.prefill.Prompts.ReadSoon(ctx, t.req, t.authorization)
	if err != nil {
		t.proof.Logger.Debug("the ids of a prompt are not known", "turn", t.id, "prefill", t.prefill.Engine().Name, "error", err)
		return err
	}
	t.ids.compare(prompt)
	return nil
}

// note records whether an incarnation takes part in the token proof, and logs a change.
func (p *Tokens) note(incarnation *fleet.Incarnation, lacks string) {
	if !incarnation.Judge(lacks) {
		return
	}
	engine := incarnation.Engine()
	attrs := []any{"role", engine.Role.String(), "instance", engine.Name, "incarnation", incarnation.ID()}
	if lacks == "" {
		p.Logger.Info("engine takes part in the token proof", attrs...)
		return
	}
	p.Logger.Warn("engine takes no part in the token proof, nothing of it is reused", append(attrs, "why", lacks)...)
}

// Look prepares for [IDs.Offer]: it gets the ids of the new prompt from the chosen prefill instance, whose /tokenize is believed only for
// shapes of requests for which it returned what the same incarnation of prefill rendered. miss is the reason why this request can use no branch
// at all, "" for none.
func (t *Turn) Look(ctx context.Context) (miss string) {
	if t.api.Rendered() { // Begin has fetched the ids
		return t.unrendered
	}
	if ids, ok := t.req.Prompt().IDs(); ok {
		t.ids.compare(facts.Prompt{IDs: ids, List: t.req.Prompt().Text()})
		return ""
	}
	if t.shape == "" || t.prefill.Parity.Of(t.req.Model(), t.shape) != facts.Yes {
		return Unproven(LacksShape)
	}
	if t.read(ctx) != nil {
		return MissTokenizeFailed
	}
	return ""
}

// Seal returns the chain of the tokens whose KV decode holds at the end of an answer: the prompt as prefill computed it, and the output as
// decode sampled it. prompt and completion are the tokens that decode's usage counts, -1 for each that it does not report. If there is no such
// chain, why is the reason why the answer leaves no ticket.
func (t *Turn) Seal(decode *fleet.Incarnation, params *upstream.TicketParams, prompt, completion int) (chain convcache.Chain, why string) {
	const miscounted = "ineligible_token_count"
	k, told := t.ids, params.OutputIDs
	if !t.api.Rendered() { // for the other APIs an answer may lack params although the plug-in is there
		decode.PlugIn.Learn(told != nil)
	}
	output := k.chain.Len() - k.promptLen
	switch {
	case told != nil && output == 0:
		k.chain.Add(told)
		k.retained.add(told)
		output = len(told)
	case told != nil && output != len(told):
		return chain, miscounted // decode reported the ids twice, in different numbers
	case output == 0:
		return chain, Unproven(LacksIDs)
	}
	// remote_num_tokens may equal the number of ids or be one less. So an id that was lost on the way, or came twice, shows in the usage
	// alone.
	if prompt >= 0 && prompt != k.promptLen || completion >= 0 && completion != output {
		return chain, miscounted
	}
	chain, ok := k.seal(params.Tokens)
	if !ok {
		return chain, miscounted
	}
	return chain, ""
}

// IDs returns the ids of the last attempt, nil before Begin, and for a nil Turn.
func (t *Turn) IDs() *IDs {
	if t == nil {
		return nil
	}
	return t.ids
}

// Drop releases the request, and the ids of its prompt: a stream of minutes must not keep them in memory. After Drop only the answer is
// processed.
func (t *Turn) Drop() {
	t.req = nil
	if k := t.ids; k != nil {
		k.drop()
	}
}
