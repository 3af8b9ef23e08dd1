package proof

import (
	"bytes"
	"crypto/sha256"
	"errors"

	"carryover/convcache"
	"carryover/sse/rawjson"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
)

// digest is what remains of ids after drop.
type digest [sha256.Size]byte

func digestOf(ids []uint32) digest { return sha256.Sum256(rawjson.AppendIDs(nil, ids)) }

// ErrIDs says that prefill's answer does not repeat the ids that prefill was sent.
var ErrIDs = errors.New("prefill did not compute the ids that it was sent; restart it, its prefix cache is in doubt")

// IDs are the token ids of one attempt's prompt and answer. A nil IDs is an attempt whose legs carry no ids and whose engines reported none.
type IDs struct {
	turn     *Turn
	unproven string // the reason of a miss if nothing of this attempt is proven; "" if both engines use forwarded ids

	// prompt has the ids that prefill computed, or, before it has answered, those that it must compute. It also has their list, as an engine or the
	// client spelled it. Ids that an engine has told lie in the memory of its answer.
	prompt facts.Prompt
	hashed convcache.IDs // the prompt's ids, hashed as far as they were compared with branches
	gone   digest        // of ids that were dropped before decode said which prompt it computed
	sent   bool          // the prefill leg carried the ids
	fixed  bool          // both legs carry the ids, with or without a ticket

	tokenised chan []uint32 // brings what /tokenize returns for the prompt, nil if it is not asked
	learnt    chan struct{} // closed after the comparison with what prefill rendered, nil if there is none

	chain     *convcache.Growing // prompt and output, as far as engines reported them
	promptLen int                // how many ids of the chain are the prompt's
	retained  *Retained          // the same ids packed, nil if they are not kept
}

func newIDs(t *Turn) *IDs {
	k := &IDs{turn: t}
	k.set(facts.Prompt{})
	return k
}

// Wanted reports whether legs are asked for ids.
func (k *IDs) Wanted() bool { return k != nil && k.unproven == "" }

// Unproven returns the reason of a miss if nothing of this attempt is proven, "" if nothing speaks against a proof.
func (k *IDs) Unproven() string {
	if k == nil {
		return ""
	}
	return k.unproven
}

func (k *IDs) lose(lacks string) { k.unproven = Unproven(lacks) }

// Lost ends the attempt's part in the proof, because an engine reported no ids.
func (k *IDs) Lost() {
	if k != nil {
		k.lose(LacksIDs)
	}
}

func (k *IDs) compare(prompt facts.Prompt) {
	const maxSpelling = len("4294967295, ") // for an id
	// Both legs carry a list as it was spelled, unless it has much white space.
	if len(prompt.List) > maxSpelling*len(prompt.IDs)+len("[]") {
		prompt.List = rawjson.AppendIDs(nil, prompt.IDs)
	}
	k.set(prompt)
}

// set stores the ids of the prompt. Retained ids stay if the chain has begun, because they belong to its prompt. Before that they belong to another
// prompt and are discarded.
func (k *IDs) set(prompt facts.Prompt) {
	if k.chain == nil {
		k.Discard()
	}
	k.prompt, k.hashed = prompt, *k.turn.proof.Chains.IDs(prompt.IDs)
}

// are reports whether an engine's list has exactly the prompt's ids. Engines spell a list as they got it, or as they sent it before, so equal bytes
// are equal ids. Only a list that is spelled differently is parsed.
func (k *IDs) are(list []byte) bool {
	if k.gone != (digest{}) {
		ids, ok := rawjson.ParseIDs(list)
		return ok && digestOf(ids) == k.gone
	}
	return len(list) > 0 && bytes.Equal(list, k.prompt.List) || rawjson.EqualIDs(list, k.prompt.IDs)
}

// drop returns the ids' memory for another prompt, once both legs are written and no further leg will be sent. If an attempt ends otherwise, a leg
// may still be on its way, and the memory is left to the garbage collector. A stream of the Responses API reports the prompt in its last event,
// others in the first; so for Responses a digest remains.
func (k *IDs) drop() {
	told := k.prompt
	if k.turn.api == body.Responses && len(told.IDs) > 0 {
		k.gone = digestOf(told.IDs)
	}
	k.set(facts.Prompt{})
	told.Done()
}

// Forward decides whether the prefill leg carries ids. With a ticket it does, so that prefill computes exactly the proven ids. Without one, prefill
// renders by itself, and parity can be learnt from the ids that it reports. Fixed ids are always forwarded.
func (k *IDs) Forward(withTicket bool) {
	if k == nil {
		return
	}
	if k.sent = withTicket || k.fixed; !k.sent {
		k.set(facts.Prompt{})
	}
}

// ForPrefill returns the JSON list of ids that the prefill leg carries, nil if prefill renders by itself.
func (k *IDs) ForPrefill() []byte {
	if k == nil || !k.sent {
		return nil
	}
	return k.prompt.List
}

// ForDecode returns the JSON list of ids that the decode leg carries, nil if decode renders by itself. Ids of a chat prompt go only to an incarnation
// that uses them; an incarnation other than the attempt's first one may not.
func (k *IDs) ForDecode(incarnation *fleet.Incarnation) []byte {
	if k == nil {
		return nil
	}
	if k.Wanted() && incarnation != k.turn.decode && k.turn.api.ForwardsIDs() && incarnation.Capability.UsesIDs(k.turn.api) != facts.Yes {
		k.lose(LacksProbe)
	}
	if !k.Wanted() && !k.sent {
		return nil
	}
	return k.prompt.List
}

// Prompt returns the ids that prefill computes, nil if unknown. The caller must not change them.
func (k *IDs) Prompt() []uint32 {
	if k == nil {
		return nil
	}
	return k.prompt.IDs
}

// CheckEcho checks the list of ids that prefill says it computed. If ids were sent, ours or the client's prompt, the list must repeat them, else the
// error is ErrIDs. If none were sent, the list shows what prefill rendered, and decode is sent these ids.
func (k *IDs) CheckEcho(computed []byte) error {
	k.rendered(computed)
	switch {
	case !k.Wanted():
		return nil
	case k.sent && !k.are(computed):
		return ErrIDs
	case k.sent:
		return nil
	}
	t, p := k.turn, k.turn.proof
	ids, ok := rawjson.ParseIDs(computed)
	if !ok { // the engine reports no ids, so nothing can be proven later
		k.lose(LacksIDs)
		p.note(t.prefill, LacksIDs)
		return nil
	}
	if prompt := t.req.Prompt(); !rawjson.EqualIDs(prompt.Text(), ids) {
		if _, readable := prompt.IDs(); readable { // the client's prompt is other ids; only engines can read a list with 1.0 in it
			return ErrIDs
		}
	}
	k.set(facts.Prompt{IDs: ids, List: computed})
	if t.api == body.Chat { // engines of the other APIs have to show something else
		p.note(t.prefill, "")
		p.note(t.decode, "")
	}
	return nil
}

// Grow begins the chain of the tokens that decode will hold. blockSize is the size of its blocks, 0 if unknown.
func (k *IDs) Grow(blockSize int) {
	if !k.Wanted() {
		return
	}
	if k.chain != nil { // the retained ids belong to the old chain
		k.Discard()
	}
	k.chain, k.promptLen = k.hashed.Grow(blockSize), len(k.prompt.IDs)
}

// fewIDs is how many output ids are read without an allocation. An event has one id, or as many as speculative decoding has accepted.
const fewIDs = 32

// Add records the ids that decode says it computed, nil for a list that it does not report. why is not empty if decode computed another prompt than
// prefill, or the output is unreadable: then the answer leaves no ticket.
func (k *IDs) Add(prompt, output []byte) (why string) {
	if prompt != nil && (k == nil || !k.are(prompt)) {
		why = "prompt_ids"
	}
	if output != nil && k != nil && k.chain != nil {
		var few [fewIDs]uint32
		s := rawjson.Scanner{Data: output}
		s.Space()
		if ids, ok := s.IDsInto(few[:]); ok && s.End() {
			k.chain.Add(ids)
			k.retained.add(ids)
		} else {
			why = "output_ids"
		}
	}
	if why != "" { // the answer leaves no ticket
		k.Discard()
	}
	return why
}

// Bytes returns the memory of the chain until the end of the stream. Retained ids are not counted: their arena bounds them.
func (k *IDs) Bytes() int64 {
	if k == nil || k.chain == nil {
		return 0
	}
	return int64(k.chain.Bytes())
}

// Offer returns how much of a branch the ids prove. Part of a ticket is offered only if prefill's blocks have the same size.
func (k *IDs) Offer(b convcache.Branch) (o convcache.Offer) {
	if k == nil {
		return o
	}
	if o = k.hashed.Offer(b); !o.Whole && k.turn.prefill.BlockSize() != b.Chain.BlockSize {
		return convcache.Offer{}
	}
	return o
}
