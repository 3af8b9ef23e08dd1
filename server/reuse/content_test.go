package reuse

import (
	"testing"

	"carryover/convcache"
	"carryover/server/proof"
	"carryover/server/request"
)

// offers is a proof that offers so much of each branch.
type offers struct {
	proof.Turn
	of map[convcache.TicketID]convcache.Offer
}

func (o offers) Offer(b convcache.Branch) convcache.Offer { return o.of[b.ID] }

// A ticket that would be cut may be that of another user who began with the same words.
func TestChoices_WithoutAnIDWholeTicketsComeFirst(t *testing.T) {
	own, others := convcache.TicketID{1}, convcache.TicketID{2}
	looked := Lookup{Branches: []convcache.KeyedBranch{{Branch: convcache.Branch{ID: others}}, {Branch: convcache.Branch{ID: own}}}}
	for source, first := range map[string]convcache.TicketID{request.SourceContent: own, "conversation_id": others} {
		p := Proving{
			request: &request.Request{Conversation: request.Conversation{Known: true, Source: source}},
			proof:   offers{of: map[convcache.TicketID]convcache.Offer{own: {Tokens: 100, Whole: true}, others: {Tokens: 160}}},
		}
		choices, _ := p.choices(&looked)
		if len(choices) != 2 || choices[0].branch.ID != first {
			t.Errorf("%s: the first choice is %v, want %v", source, choices[0].branch.ID, first)
		}
	}
}

// A turn that found a ticket of its conversation and could not use it makes it superfluous with its own, although that has another key.
func TestLookup_TellsWhatANewTicketOutdatesUnderOtherKeys(t *testing.T) {
	key, earlier := convcache.Key{1}, convcache.Key{2}
	branch := func(in convcache.Key, name byte, blocks ...uint64) convcache.KeyedBranch {
		return convcache.KeyedBranch{Key: in, Branch: convcache.Branch{
			ID: convcache.TicketID{name}, Groups: 1, Tokens: 16 * len(blocks), Chain: convcache.Chain{BlockSize: 16, Tokens: 16 * len(blocks), Blocks: blocks, Whole: uint64(name)},
		}}
	}
	ticket := convcache.Ticket{Branch: branch(key, 1, 10, 11, 12).Branch}
	looked := Lookup{taken: convcache.TicketID{5}, Branches: []convcache.KeyedBranch{
		branch(earlier, 2, 10, 11),
		branch(earlier, 3, 10, 99), // diverges: its user may come back to it
		branch(key, 4, 10),         // the put has displaced it
		branch(earlier, 5, 10),     // this turn has taken it
		branch(earlier, 6, 20, 21), // of another conversation
	}}
	outdated := looked.outdatedBy(&ticket, key)
	if len(outdated) != 1 || outdated[0].ID != (convcache.TicketID{2}) || outdated[0].Key != earlier {
		t.Errorf("outdated: %+v, want the second ticket", outdated)
	}
}
