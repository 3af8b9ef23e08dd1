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

// Tokens begins the proofs of turns.
type Tokens struct {
	Chains     convcache.ChainKey // the key of tickets' chains
	Logger     *slog.Logger
	Background func(what, id string, work func()) // runs work that legs do not wait for
}

// Admit begins the proof of a request, or returns why the request takes no part in reuse. Ids do not show which images, audio and files they stand
// for, so a request with such content takes no part. account is the request's. authorization is the client's credential, "" if it is not forwarded.
func (p *Tokens) Admit(req *body.Request, account, authorization string) (_ *Turn, why string) {
	t := &Turn{proof: p, req: req, api: req.API, account: account, authorization: authorization}
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
	shape string // the shape for which parity is learnt, "" if requests like this can't be compared

	account, authorization string

	// Of the last attempt:
	id              string // names the turn in the log
	prefill, decode *fleet.Incarnation
	ids             *IDs
	unrendered      string // the reason of a miss for a prompt that could not be rendered, "" if it was
}

// What an attempt may lack for a proof.
const (
	LacksIncarnation = "incarnation" // an engine's incarnation is unknown
	LacksProbe       = "probe"       // an engine has not shown that it uses the ids that it is sent
	LacksIDs         = "ids"         // an engine does not report ids
	// Of a render endpoint, which alone returns some prompts' ids (vLLM --enable-scale-out, or --render):
	LacksRender = "render" // there is none, or it did not answer

	LacksShape = "shape" // /tokenize has not shown that it renders such requests like prefill, or renders them differently
)

// Unproven returns the reason of a miss for a turn that lacks something.
func Unproven(lacks string) string { return "ineligible_unproven;why=" + lacks }

// MissTokenizeFailed is the reason of a miss if /tokenize did not return the prompt's ids.
const MissTokenizeFailed = "tokenize_failed"

// Begin begins an attempt on a pair. id names the turn in the log. If legs carry ids in their params, it finds out whether both engines use them, by
// one probe for each incarnation. In text completions the ids are the prompt, which every engine accepts. For an API with a render endpoint, Begin
// requests the ids, and both legs carry them.
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

// worth returns what an engine of the pair lacks, "" for nothing.
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

// render requests the prompt's ids from the render endpoint. Without one, a turn of the Responses API reuses nothing, but its own answer can be
// handed back: that answer reports the prompt's ids.
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

func (t *Turn) read(ctx context.Context) error {
	prompt, err := t.prefill.Prompts.ReadSoon(ctx, t.req, t.authorization)
	if err != nil {
		t.proof.Logger.Debug("the ids of a prompt are not known", "turn", t.id, "prefill", t.prefill.Engine().Name, "error", err)
		return err
	}
	t.ids.compare(prompt)
	return nil
}

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

// Look gets the ids of the new prompt for [IDs.Offer] from the chosen prefill instance. Its /tokenize is believed only for shapes for which it has
// returned what this incarnation rendered. miss is the reason why this request can use no branch at all, "" for none.
func (t *Turn) Look(ctx context.Context) (miss string) {
	if t.api.Rendered() { // Begin has fetched the ids
		return t.unrendered
	}
	if ids, ok := t.req.Prompt().IDs(); ok {
		t.ids.compare(facts.Prompt{IDs: ids, List: t.req.Prompt().Text()})
		return ""
	}
	if t.shape == "" || t.prefill.Parity.Of(t.req.Model, t.shape) != facts.Yes {
		return Unproven(LacksShape)
	}
	if t.read(ctx) != nil {
		return MissTokenizeFailed
	}
	return ""
}

// Seal returns the chain of the tokens whose KV decode holds at the end of an answer: the prompt as prefill computed it, and the output as decode
// sampled it. prompt and completion are the numbers in decode's usage, -1 if unreported. Without a chain, why says why the answer leaves no ticket.
func (t *Turn) Seal(decode *fleet.Incarnation, params *upstream.TicketParams, prompt, completion int) (chain convcache.Chain, why string) {
	const miscounted = "ineligible_token_count"
	k, told := t.ids, params.OutputIDs
	if !t.api.Rendered() { // answers of the other APIs may lack params despite the plug-in
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
	// remote_num_tokens may equal the number of ids or be one less. So only the usage shows an id that was lost on the way, or came twice.
	if prompt >= 0 && prompt != k.promptLen || completion >= 0 && completion != output {
		return chain, miscounted
	}
	chain, ok := k.seal(params.Tokens)
	if !ok {
		return chain, miscounted
	}
	return chain, ""
}

// IDs returns the ids of the last attempt. It returns nil before Begin, and for a nil Turn.
func (t *Turn) IDs() *IDs {
	if t == nil {
		return nil
	}
	return t.ids
}

// Drop releases the request and the ids of its prompt, so that a stream of minutes does not keep them. Afterwards only the answer is processed.
func (t *Turn) Drop() {
	t.req = nil
	if k := t.ids; k != nil {
		k.drop()
	}
}
