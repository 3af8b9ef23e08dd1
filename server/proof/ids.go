package proof

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"

	"carryover/convcache"
	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// ErrIDs says that a prefill answer does not repeat the ids that prefill was sent.
var ErrIDs = errors.New("prefill did not compute the ids that it was sent; restart it, its prefix cache is in doubt")

// IDs are the prompt of one attempt as token ids, and the ids of its answer. A nil IDs behaves as one whose legs carry no ids and whose engines
// reported none.
type IDs struct {
	turn   *tokensTurn
	wanted bool   // a ticket of this attempt can be proven: both engines use forwarded ids
	lacks  string // what is missing for a proof, "" if wanted is true

	prompt convcache.IDs // the ids below, hashed as far as they were compared with branches
	ids    []uint32      // the ids that prefill computed; before it answered, those that it must compute
	list   []byte        // the same as JSON, as an engine or the client has spelled them
	told   fleet.Prompt  // an engine's answer, of which they are; zero if they are of another text
	sent   bool          // the prefill leg carried them
	fixed  bool          // both legs carry them, with or without a ticket
	parity *parity       // the comparison with /tokenize that is under way, nil for none
	gone   digest        // of the ids, where they are let go of before decode says which it computed

	chain     *convcache.Growing // prompt and output, as far as it was told
	promptLen int                // how many ids of the chain belong to the prompt
	retained  *Retained          // the same ids packed, nil where they are not kept
}

// newIDs returns those of an attempt of which nothing is known yet.
func newIDs(t *tokensTurn) *IDs {
	k := &IDs{turn: t, wanted: true}
	k.set(nil, nil)
	return k
}

// Wanted reports whether legs are asked for ids.
func (k *IDs) Wanted() bool { return k != nil && k.wanted }

// Lacks returns what is missing for a ticket of this attempt, "" for nothing.
func (k *IDs) Lacks() string {
	if k == nil {
		return ""
	}
	return k.lacks
}

// lose ends the attempt's part in the proof.
func (k *IDs) lose(lacks string) { k.wanted, k.lacks = false, lacks }

// Lost ends the attempt's part in the proof because an engine reported no ids.
func (k *IDs) Lost() {
	if k != nil {
		k.lose(LacksIDs)
	}
}

// maxSpelling is how many bytes of a list an id may take, ten digits and ", ", for both legs to get the list as it was told.
const maxSpelling = 12

// compare takes the ids of the new prompt, and the list that they were read of.
func (k *IDs) compare(ids []uint32, list []byte) {
	if len(list) > maxSpelling*len(ids)+2 { // white space
		list = rawjson.AppendIDs(nil, ids)
	}
	k.set(ids, list)
}

// fix takes the ids of a prompt that was rendered before the first leg, for both legs.
func (k *IDs) fix(prompt fleet.Prompt) {
	k.compare(prompt.IDs, prompt.List)
	k.told, k.fixed = prompt, true
}

// set takes the ids of the prompt, and a list that has them. What is retained is of the prompt that the chain has begun with; before it
// has, of another one.
func (k *IDs) set(ids []uint32, list []byte) {
	if k.chain == nil {
		k.Discard()
	}
	k.ids, k.list, k.prompt, k.told = ids, list, *k.turn.proof.chains.IDs(ids), fleet.Prompt{}
}

// drop lets go of the ids, so that their memory serves another prompt: both legs are written, and no more are sent. Of an attempt that
// ends otherwise a leg may be on its way, so that its memory is left to the garbage collector. A stream of the Responses API tells the
// prompt in its last event, where that of the others tells it in the first.
func (k *IDs) drop() {
	if k.turn.api == upstream.Responses && len(k.ids) > 0 {
		k.gone = digestOf(k.ids)
	}
	told := k.told
	k.set(nil, nil)
	told.Done()
}

// are reports whether an engine's list has the ids that prefill computed, or must compute. Engines spell a list as they got it, or as
// they told it before, and equal bytes are equal ids: they are read of another spelling only.
func (k *IDs) are(list []byte) bool {
	if k.gone != (digest{}) {
		ids, ok := rawjson.ParseIDs(list)
		return ok && digestOf(ids) == k.gone
	}
	return len(list) > 0 && bytes.Equal(list, k.list) || rawjson.EqualIDs(list, k.ids)
}

// digest is what remains of ids that are let go of.
type digest [sha256.Size]byte

func digestOf(ids []uint32) (d digest) {
	h := sha256.New()
	var id [4]byte
	for _, v := range ids {
		binary.LittleEndian.PutUint32(id[:], v)
		h.Write(id[:])
	}
	h.Sum(d[:0])
	return d
}

// Forward decides whether the prefill leg carries ids: with a ticket always, so that what was proven is what is
// computed; else prefill renders by itself, and parity can be learnt from what it says it rendered. Ids that are fixed are forwarded
// either way.
func (k *IDs) Forward(withTicket bool) {
	if k == nil {
		return
	}
	if k.sent = withTicket || k.fixed; !k.sent {
		k.set(nil, nil)
	}
}

// ForPrefill returns the JSON list of ids that the prefill leg has to compute, nil to let it render.
func (k *IDs) ForPrefill() []byte {
	if k == nil || !k.sent {
		return nil
	}
	return k.list
}

// ForDecode is the JSON list of ids that the decode leg has to compute, nil to let it render. Ids of a chat prompt
// go only to a start that uses them; another than the one that the attempt began with may not.
func (k *IDs) ForDecode(start *fleet.Incarnation) []byte {
	if k == nil {
		return nil
	}
	if k.wanted && start != k.turn.attempt.Decode && k.turn.api.ForwardsIDs() && start.UsesIDs(k.turn.api) != fleet.Yes {
		k.lose(LacksProbe)
	}
	if !k.wanted && !k.sent {
		return nil
	}
	return k.list
}

// Prompt returns the ids that prefill computes, nil if they are not known. The caller must not change them.
func (k *IDs) Prompt() []uint32 {
	if k == nil {
		return nil
	}
	return k.ids
}

// Len returns how many ids the prompt has, 0 if they are not known.
func (k *IDs) Len() int {
	if k == nil {
		return 0
	}
	return len(k.ids)
}

// CheckEcho checks what prefill says that it computed, the raw list of its answer. With ids sent, ours or the client's
// prompt, it must repeat them; without, it tells what it rendered, which decode is to use. ErrIDs means that it computed others.
func (k *IDs) CheckEcho(computed []byte) error {
	switch {
	case !k.Wanted():
		return nil
	case k.sent && !k.are(computed):
		return ErrIDs
	case k.sent:
		return nil
	}
	a, p := &k.turn.attempt, k.turn.proof
	ids, ok := rawjson.ParseIDs(computed)
	if !ok { // an engine that does not tell; nothing can be proven later
		k.lose(LacksIDs)
		p.note(a.Prefill, LacksIDs)
		return nil
	}
	if k.turn.differs(ids) {
		return ErrIDs
	}
	k.set(ids, computed)
	if k.turn.api == upstream.Chat { // of the engines of other APIs something else is asked
		p.note(a.Prefill, "")
		p.note(a.Decode, "")
	}
	return nil
}

// Grow begins the chain of what decode will hold, whose blocks have that size (0 if it is not known).
func (k *IDs) Grow(blockSize int) {
	if !k.Wanted() {
		return
	}
	if k.chain != nil { // of which what is retained is
		k.Discard()
	}
	k.chain, k.promptLen = k.prompt.Grow(blockSize), len(k.ids)
}

// Add notes what decode says that it computed; nil for what it does not tell. A prompt of other ids than prefill's makes the whole
// answer worthless as a ticket: odd says so.
func (k *IDs) Add(prompt, output []byte) (why string) {
	if prompt != nil && (k == nil || !k.are(prompt)) {
		why = "prompt_ids"
	}
	if output != nil && k != nil && k.chain != nil {
		ids, ok := rawjson.ParseIDs(output)
		if !ok {
			why = "output_ids"
		}
		k.chain.Add(ids)
		k.retained.add(ids)
	}
	if why != "" { // no ticket comes of it
		k.Discard()
	}
	return why
}

// Bytes is the memory that the end of the stream needs of the prompt. What is retained is not counted: its room bounds it.
func (k *IDs) Bytes() int64 {
	if k == nil || k.chain == nil {
		return 0
	}
	return int64(k.chain.Bytes())
}

// Learn has the prompt tokenised while prefill computes it, for a shape whose parity is not known yet.
func (k *IDs) Learn(ctx context.Context) {
	if k.Wanted() && !k.sent {
		k.parity = k.turn.askParity(ctx)
	}
}

// Rendered brings what prefill says that it rendered to what /tokenize says, nil if that is not known.
func (k *IDs) Rendered(computed []byte) {
	if k != nil {
		k.parity.meet(computed, nil)
	}
}

// Learning reports whether something is being learnt of /tokenize.
func (k *IDs) Learning() bool { return k != nil && k.parity != nil }

// Learnt gives /tokenize until ctx ends, so that a next turn that follows at once finds what was learnt.
func (k *IDs) Learnt(ctx context.Context) {
	if k != nil {
		k.parity.await(ctx)
	}
}
