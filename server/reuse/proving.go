package reuse

import (
	"context"
	"time"

	"carryover/convcache"
	"carryover/server/continuation"
	"carryover/server/pins"
	"carryover/server/proof"
	"carryover/server/record"
	"carryover/server/request"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
)

// Proving is the part that one turn takes in reuse: it decides how much of a ticket the turn may use, and whether the turn may leave one.
// Only the turn's own goroutine uses it. The zero value takes no part.
type Proving struct {
	Ineligible string        // why the request itself rules reuse out, "" if it does not
	Without    record.Reason // why the attempt must not use a ticket, "" if it may
	IDs        *proof.IDs    // the attempt's token ids, nil if none are compared

	request *request.Request
	record  *record.Builder
	proof   *proof.Turn   // nil if nothing may be reused or kept
	outline outline       // of the request; none if no ticket is used or left
	pair    Incarnations  // of the attempt
	lacks   string        // what the attempt lacks for a proof, "" if it lacks nothing
	waited  time.Duration // for hand-backs, in all attempts
	atEnd
}

// atEnd is what the end of the answer needs.
type atEnd struct {
	arena      *proof.Arena      // keeps the answer's ids for a hand-back; nil if nothing is handed back
	clientSalt string            // the client's cache_salt, kept if the answer may be handed back
	kind       continuation.Kind // of the answer
	told       bool              // the learner knows of the turn
	prompt     body.Beginning    // of a text completion without an id
	goesOn     func(with body.Beginning) bool
}

// Incarnations are those of an attempt's two engines.
type Incarnations struct {
	Prefill, Decode *fleet.Incarnation // Prefill is nil if decode prefills by itself
	Quarantined     bool               // a prefill instance is quarantined, so that the attempt avoids it or its prefix cache
}

// Prover begins the proofs of turns.
type Prover struct {
	tokens   *proof.Tokens
	outlines convcache.ChainKey // key of the outlines of tickets
	reuses   bool               // the connector leaves KV that a next turn can use
	arena    *proof.Arena       // keeps token ids for hand-backs, nil if nothing is handed back
}

// Begin begins the proof of a turn. It records to which conversation the turn belongs.
func (v *Prover) Begin(req *request.Request, parsed *body.Request, turn *record.Builder) Proving {
	p := v.admit(req, parsed)
	p.request, p.record, p.kind = req, turn, kindOf(req, parsed)
	if prompt := parsed.Prompt(); req.API == body.Text && req.Conversation.ByContent() {
		p.prompt, p.goesOn = prompt.Beginning(), prompt.GoesOn()
	}
	reuse := turn.Reuse()
	reuse.Off, reuse.Proof, reuse.Continues = req.Conversation.Off, proofTokens, req.Length.Answered
	turn.Reuses(reuse)
	turn.Asks(req.Model, req.Conversation.Name, req.Conversation.Source, req.Conversation.ID)
	return p
}

// admit begins the proof of a request, or says why the request takes no part in reuse.
func (v *Prover) admit(req *request.Request, parsed *body.Request) (p Proving) {
	if why, ok := parsed.Disaggregable(); !ok {
		p.Ineligible = why
		return p
	}
	if why, ok := parsed.Reusable(); !ok {
		p.Ineligible = why
		return p
	}
	switch {
	case !req.Conversation.Known && !v.outside(req):
	case !v.reuses:
		p.Ineligible = record.WhyConnector
	default:
		p.proof, p.Ineligible = v.tokens.Admit(parsed)
	}
	if p.proof == nil {
		return p
	}
	if req.Conversation.Known {
		p.outline = outline{v.outlines, parsed.Prompt().Outline()}
	}
	if !req.Conversation.Final {
		p.arena = v.arena
		p.clientSalt, _ = parsed.String("cache_salt")
	}
	return p
}

// outside reports whether the answer of a turn without a conversation is handed back.
func (v *Prover) outside(req *request.Request) bool { return v.arena != nil && !req.Conversation.Off }

// TakesPart reports whether the turn can use or leave a ticket.
func (p *Proving) TakesPart() bool { return p.proof != nil }

// Begin begins the proof of an attempt on a pair, after it has discarded that of the attempt before. Work that the legs do not wait for runs
// in the background.
func (p *Proving) Begin(ctx context.Context, pair Incarnations, background func(what, id string, work func())) {
	p.IDs.Forward(false) // a leg of the attempt before may still be sending the ids, so that their memory must not be reused
	p.IDs.Discard()
	p.IDs, p.lacks, p.pair = nil, "", pair
	switch {
	case p.proof == nil, pair.Prefill == nil, pair.Quarantined:
	default:
		turn := p.record.ID()
		p.lacks = p.proof.Begin(ctx, proof.Attempt{
			TurnID: turn, Prefill: pair.Prefill, Decode: pair.Decode, Authorization: p.request.Authorization, Account: p.request.Account,
			Background: func(f func()) { background("parity", turn, f) },
		})
		p.IDs = p.proof.IDs()
	}
}

// Listen begins to collect the ids of the answer for a ticket.
func (p *Proving) Listen(to *Origin) *proof.IDs {
	if to.Pair != nil {
		p.IDs.Retain(p.arena)
	}
	p.IDs.Grow(to.BlockSize)
	return p.IDs
}

// Drop releases the request's body and its ids, except what the end of the answer needs.
func (p *Proving) Drop() {
	p.goesOn = nil
	if p.proof != nil {
		p.proof.Drop()
	}
}

// Bytes returns the memory that the end of the answer needs of the prompt: hashes of its tokens, and its outline.
func (p *Proving) Bytes() int64 { return p.IDs.Bytes() + 8*int64(len(p.outline.parts)) }

// Discard frees the ids that the attempt has kept for a hand-back that will not happen.
func (p *Proving) Discard() { p.IDs.Discard() }

// put stores a ticket under a key of the turn's conversation.
func (p *Proving) put(ctx context.Context, tickets *pins.Pins, key convcache.Key, ticket convcache.Ticket) convcache.Outcome {
	step := p.record.Step(record.StepPut)
	ticket.Account = p.request.Account
	outcome := tickets.Put(ctx, key, ticket, p.request.Model)
	step.Ended(outcome == convcache.Stored)
	return outcome
}
