package server

import (
	"carryover/server/outline"
	"carryover/server/proof"
	"carryover/server/record"
	"carryover/server/request"
	"carryover/upstream/body"
)

// proving decides how much of a ticket a turn may use, and whether the turn may leave one.
type proving struct {
	proof      proof.Turn       // nil where nothing may be reused or kept
	ineligible string           // why the request itself rules reuse out, "" where it does not
	way        string           // the proof's name
	outline    *outline.Outline // the history without its content, nil where no ticket is used or left
	arena      *proof.Arena     // keeps the answer's ids for a hand-back; nil where nothing is handed back
	clientSalt string           // the client's cache_salt, kept where the answer may be handed back
	ids        *proof.IDs       // the attempt's token ids, nil where the proof compares none
	lacks      string           // what the attempt lacks for a proof, "" where it lacks nothing
}

// prover begins the proofs of turns.
type prover struct {
	cfg             *Config
	tokens, history proof.Proof
	reuses          bool         // the connector leaves KV that a next turn can use
	arena           *proof.Arena // keeps token ids for hand-backs, nil where nothing is handed back
	outlines        outline.Key
}

// begin begins the proof of a request, or says why the request takes no part in reuse.
func (v *prover) begin(req *request.Request, parsed *body.Request) (p proving) {
	way, byHistory := v.tokens, v.cfg.proofFor(req.Model) == ProofHistory
	if byHistory {
		way = v.history
	}
	p.way = way.Name()
	if why, ok := parsed.Disaggregable(); !ok {
		p.ineligible = why
		return p
	}
	if why, ok := parsed.Reusable(); !ok {
		p.ineligible = why
		return p
	}
	switch {
	case byHistory && req.API.Rendered():
		p.ineligible = record.WhyAPI
	case !req.Conversation.Known && !v.outside(req):
	case !v.reuses:
		p.ineligible = record.WhyConnector
	default:
		p.proof, p.ineligible = way.Admit(parsed)
	}
	if p.proof == nil {
		return p
	}
	if req.Conversation.Known {
		p.outline = v.outlines.Of(parsed)
	}
	if !req.Conversation.Final {
		p.arena = v.arena
		p.clientSalt, _ = parsed.String("cache_salt")
	}
	return p
}

// outside reports whether the answer of a turn without a conversation is handed back. The history proof can't serve such a turn, because
// only token ids prove what decode holds for it.
func (v *prover) outside(req *request.Request) bool {
	return v.arena != nil && !req.Conversation.Off && v.cfg.proofFor(req.Model) != ProofHistory
}

// admit begins the turn's proof, and records what is known of the request.
func (t *turn) admit(v *prover) {
	t.proving = v.begin(&t.Request, t.body)
	reuse, conversation := t.record.Reuse(), ""
	reuse.Off, reuse.Proof = t.Conversation.Off, t.way
	t.record.Reuses(reuse)
	if t.Conversation.Known {
		conversation = t.Conversation.Key.Short()
	}
	t.record.Asks(t.Model, conversation, t.Conversation.Source)
}
