package reuse

import (
	"testing"

	"carryover/convcache"
)

// A ticket that would be cut may be that of another user who began with the same words.
func TestChoices_WithoutAnIDWholeTicketsComeFirst(t *testing.T) {
	own, others := convcache.Offer{Tokens: 100, Whole: true}, convcache.Offer{Tokens: 160}
	for byContent, first := range map[bool]convcache.Offer{true: own, false: others} {
		choices := []choice{{offer: others}, {offer: own}}
		if order(choices, byContent); choices[0].offer != first {
			t.Errorf("by content %t: the first choice is %v, want %v", byContent, choices[0].offer, first)
		}
	}
}

// A turn that found a ticket of its conversation and could not use it makes it superfluous with its own, although that has another key.
func TestFound_TellsWhatANewTicketOutdatesUnderOtherKeys(t *testing.T) {
	key, earlier := convcache.Key{1}, convcache.Key{2}
	branch := func(in convcache.Key, name byte, blocks ...uint64) convcache.KeyedBranch {
		return convcache.KeyedBranch{Key: in, Branch: convcache.Branch{
			ID: convcache.TicketID{name}, Tokens: 16 * len(blocks), Chain: convcache.Chain{BlockSize: 16, Tokens: 16 * len(blocks), Blocks: blocks, Whole: uint64(name)},
		}}
	}
	ticket := convcache.Ticket{Branch: branch(key, 1, 10, 11, 12).Branch}
	looked := Found{taken: branch(earlier, 5, 10), Branches: []convcache.KeyedBranch{
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
