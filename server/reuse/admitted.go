package reuse

import (
	"context"
	"slices"
	"sync"
	"time"

	"carryover/convcache"
	"carryover/server/continuation"
	"carryover/server/proof"
	"carryover/server/record"
	"carryover/server/request"
	"carryover/sse/rawjson"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
)

// Admitted is what a request means for reuse. The zero value takes no part.
type Admitted struct {
	*request.Request
	Ineligible string // why the request itself rules reuse out, "" if it does not
	Salt       string // the cache_salt of the request's legs without that of a quarantine, "" for none

	began   time.Time         // when the turn began
	proof   *proof.Turn       // nil if nothing may be reused or kept
	outline outline           // none if no ticket is used or left
	arena   *proof.Arena      // keeps the answer's ids for a hand-back; nil if nothing is handed back
	kind    continuation.Kind // of the answer, as far as the request shows it
	prompt  body.Beginning    // of a text completion without an id
}

// Admit begins the proof of a request, or says why the request takes no part in reuse.
func (t *Tickets) Admit(req *request.Request, parsed *body.Request, began time.Time) Admitted {
	tools, _ := parsed.Member("tools")
	c := &req.Conversation
	a := Admitted{Request: req, Salt: req.TenantSalt, began: began, kind: continuation.Kind{
		API: req.API, FollowUp: req.Length.Answered, Tools: rawjson.Kind(tools) == '[' && !rawjson.IsEmpty(tools), Explicit: !c.ByContent(),
	}}
	if a.Salt == "" {
		a.Salt, _ = parsed.String("cache_salt")
	}
	if req.API == body.Text && c.ByContent() {
		a.prompt = parsed.Prompt().Beginning()
	}
	arena := t.deps.Pins.Arena()
	why, ok := parsed.Disaggregable()
	if ok {
		why, ok = parsed.Reusable()
	}
	switch {
	case !ok:
		a.Ineligible = why
	case !c.Known && (arena == nil || c.Off): // without a conversation an answer can only be handed back
	case !t.deps.Connector.Traits().Reuses:
		a.Ineligible = record.WhyConnector
	default:
		a.proof, a.Ineligible = t.deps.Tokens.Admit(parsed)
	}
	if a.proof != nil && c.Known {
		a.outline = outline{t.deps.Outlines, parsed.Prompt().Outline()}
	}
	if a.proof != nil && !c.Final {
		a.arena = arena
	}
	return a
}

// TakesPart reports whether the turn can use or leave a ticket.
func (a *Admitted) TakesPart() bool { return a.proof != nil }

// Drop releases the request's body and its ids, except what the end of the answer needs, and returns how many bytes of hashes that is.
func (a *Admitted) Drop(found *Found) (bytes int64) {
	if a.proof == nil {
		return 0
	}
	a.proof.Drop()
	bytes = a.proof.IDs().Bytes() + 8*int64(len(a.outline.parts))
	for i := range found.Branches {
		bytes += 8 * int64(len(found.Branches[i].Chain.Blocks))
	}
	return bytes
}

// Discard frees the ids that the last attempt has kept for a hand-back that will not happen.
func (a *Admitted) Discard() {
	if a.proof != nil {
		a.proof.IDs().Discard()
	}
}

// Proof is what an attempt of a request proves tokens with.
type Proof struct {
	*Admitted
	Prefill, Decode *fleet.Incarnation // of the attempt's two engines; Prefill is nil if decode prefills by itself
	Quarantined     bool               // a prefill instance is quarantined, so that the attempt avoids it or its prefix cache
	IDs             *proof.IDs         // of the prompt, nil if none are compared

	turn   string // names the turn in the log
	offers offers // nil if no ids are compared
	lacks  string // what the attempt lacks for a proof, "" if it lacks nothing
}

// offers tells how much of a branch a request may use.
type offers interface {
	Offer(b convcache.Branch) convcache.Offer
}

// offer returns how much of a branch the request may use, as far as ids prove it.
func (p *Proof) offer(b convcache.Branch) convcache.Offer {
	if p.offers == nil {
		return convcache.Offer{}
	}
	return p.offers.Offer(b)
}

// Prove begins the proof of an attempt on a pair, and discards that of the attempt before. Work that the legs do not wait for runs in the
// background.
func (t *Tickets) Prove(ctx context.Context, a *Admitted, prefill, decode *fleet.Incarnation, quarantined bool, turn string) Proof {
	p := Proof{Admitted: a, Prefill: prefill, Decode: decode, Quarantined: quarantined, turn: turn}
	if a.proof == nil {
		return p
	}
	a.proof.IDs().Forward(false) // a leg of the attempt before may still be sending the ids, so that their memory must not be reused
	a.proof.IDs().Discard()
	if prefill != nil && !quarantined {
		p.lacks = a.proof.Begin(ctx, proof.Attempt{
			TurnID: turn, Prefill: prefill, Decode: decode, Authorization: a.Authorization, Account: a.Account,
			Background: func(f func()) { t.deps.Background("parity", turn, f) },
		})
		p.IDs, p.offers = a.proof.IDs(), a.proof
	}
	return p
}

// outline is a request without its content: hashes of its parts (see [body.Prompt.Outline]), and the key that makes a ticket's of them. It
// says where a conversation's history was rewritten, and proves nothing.
type outline struct {
	key   convcache.ChainKey
	parts []uint64
}

// of returns the outline that a ticket keeps, nil if there is none.
func (o *outline) of(ticket convcache.TicketID) []uint32 {
	if o.parts == nil {
		return nil
	}
	return o.key.Outline(ticket, o.parts)
}

// agrees returns how many parts of the request that left a ticket or note are those of this one, from the first on. known is false if one of
// the two has no outline.
func (o *outline) agrees(b *convcache.Branch) (parts int, known bool) {
	if o.parts == nil || b.Outline == nil {
		return 0, false
	}
	own := o.key.Outline(b.ID, o.parts[:min(len(o.parts), len(b.Outline))])
	for parts < len(own) && own[parts] == b.Outline[parts] {
		parts++
	}
	return parts, true
}

// mayContinue reports whether a request may go on with what a ticket covers: nothing before the ticket's answer differs. It is false if that
// is not known.
func (o *outline) mayContinue(b *convcache.Branch) bool {
	parts, known := o.agrees(b)
	return known && parts == len(b.Outline)
}

// anothers reports whether a ticket or a note is known to be of a chat whose history differs before the answer, or ends there. In a text it
// can't be seen whether the last piece differs or goes on.
func (a *Admitted) anothers(b *convcache.Branch) bool {
	parts, known := a.outline.agrees(b)
	return a.API != body.Text && known && (parts < len(b.Outline) || parts == len(a.outline.parts))
}

// Bounds of what is known of ids: 1 MB in all.
const (
	maxNames = 4096 // all are forgotten beyond that
	many     = 4    // an id of so many beginnings is that of many conversations
)

// names knows with which texts the conversations of ids begin. It is safe for concurrent use.
type names struct {
	mu     sync.Mutex // guards begins
	begins map[convcache.Key][]convcache.Key
}

// shared notes a turn, and reports whether many conversations share its id.
func (n *names) shared(c *request.Conversation) bool {
	if len(c.Content) == 0 {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.begins == nil || len(n.begins) == maxNames {
		n.begins = map[convcache.Key][]convcache.Key{}
	}
	begins := n.begins[c.Key]
	if len(begins) < many && !slices.Contains(begins, c.Narrow) {
		begins = append(begins, c.Narrow)
		n.begins[c.Key] = begins
	}
	return len(begins) == many
}
