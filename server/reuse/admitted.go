package reuse

import (
	"context"
	"time"

	"carryover/convcache"
	"carryover/server/proof"
	"carryover/server/record"
	"carryover/server/request"
	"carryover/sse/rawjson"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
)

// Admitted is what a request means for reuse. The zero value takes no part in it.
type Admitted struct {
	*request.Request
	Ineligible string // why the request rules reuse out, "" if it does not
	Salt       string // the cache_salt of the request's legs, without the prefix of a quarantine; "" for none

	began    time.Time          // when the turn began
	proof    *proof.Turn        // nil if nothing may be reused or kept
	parts    []uint64           // hashes of the request's parts (see [body.Prompt.Outline]); nil if no ticket is used or left
	outlines convcache.ChainKey // makes a ticket's outline from the parts
	tools    bool               // the request offers tools
	prompt   body.Beginning     // of a text completion without an id
}

// Admit begins the proof of a request, or sets why the request takes no part in reuse.
func (t *Tickets) Admit(req *request.Request, parsed *body.Request, began time.Time) Admitted {
	tools := parsed.Member("tools")
	c := &req.Conversation
	a := Admitted{
		Request: req, Salt: req.TenantSalt, began: began, outlines: t.deps.Outlines, tools: rawjson.Kind(tools) == '[' && !rawjson.IsEmpty(tools),
	}
	if a.Salt == "" {
		a.Salt, _ = parsed.String("cache_salt")
	}
	if req.API == body.Text && c.ByContent() {
		a.prompt = parsed.Prompt().Beginning()
	}
	var ok bool
	if a.Ineligible, ok = parsed.Disaggregable(); ok {
		a.Ineligible, _ = parsed.Reusable()
	}
	switch {
	case a.Ineligible != "":
	case !c.Known && (t.deps.Pins.Arena() == nil || c.Off): // an answer without a conversation can only be handed back
	case !t.deps.Connector.Traits().Reuses:
		a.Ineligible = record.WhyConnector
	default:
		a.proof, a.Ineligible = t.deps.Tokens.Admit(parsed, req.Account, req.Authorization)
	}
	if a.proof != nil {
		a.parts = parsed.Prompt().Outline()
	}
	return a
}

// TakesPart reports whether the turn can use or leave a ticket.
func (a *Admitted) TakesPart() bool { return a.proof != nil }

// Drop releases the request's body and its ids, except what the end of the answer needs. bytes is the size of the hashes that stay.
func (a *Admitted) Drop(found *Found) (bytes int64) {
	if a.proof != nil {
		a.proof.Drop()
	}
	hashes := len(a.parts)
	for i := range found.Branches {
		hashes += len(found.Branches[i].Chain.Blocks)
	}
	return a.proof.IDs().Bytes() + 8*int64(hashes)
}

// Proof is the proof of one attempt.
type Proof struct {
	*Admitted
	Prefill, Decode *fleet.Incarnation // the attempt's engines; Prefill is nil if decode prefills by itself
	Quarantined     bool               // a prefill instance is quarantined, so the attempt avoids it or its prefix cache
	IDs             *proof.IDs         // of the prompt, nil if none are compared

	turn string // names the turn in the log
	// offers are the IDs, which tell how much of a branch the request may use.
	offers interface {
		Offer(convcache.Branch) convcache.Offer
	}
}

// Prove begins the proof of an attempt on a pair, and discards the proof of the attempt before.
func (a *Admitted) Prove(ctx context.Context, prefill, decode *fleet.Incarnation, quarantined bool, turn string) Proof {
	p := Proof{Admitted: a, Prefill: prefill, Decode: decode, Quarantined: quarantined, turn: turn}
	a.proof.IDs().Forward(false) // a leg of the attempt before may still be sending the ids, so their memory must not be reused
	a.proof.IDs().Discard()
	if a.proof != nil && prefill != nil && !quarantined {
		p.IDs = a.proof.Begin(ctx, turn, prefill, decode)
	}
	p.offers = p.IDs
	return p
}

// agrees returns how many parts this request has in common, from the first on, with the request that left the branch. It returns -1 if the outline of
// one of the two is unknown. If all parts of the branch agree, the histories are equal up to the branch's answer; that proves nothing.
func (a *Admitted) agrees(b *convcache.KeyedBranch) (parts int) {
	if a.parts == nil || len(b.Outline) == 0 {
		return -1
	}
	own := a.outlines.Outline(b.ID, a.parts[:min(len(a.parts), len(b.Outline))])
	for parts < len(own) && own[parts] == b.Outline[parts] {
		parts++
	}
	return parts
}

// anothers reports whether a branch certainly belongs to another chat: its history differs before the answer, or the request ends there. The last
// piece of a text may differ or go on, so a text is never certain.
func (a *Admitted) anothers(b *convcache.KeyedBranch) bool {
	parts := a.agrees(b)
	return a.API != body.Text && parts >= 0 && (parts < len(b.Outline) || parts == len(a.parts))
}
