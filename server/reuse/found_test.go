package reuse

import (
	"testing"

	"carryover/convcache"
	"carryover/server/request"
)

// Where a turn's ticket is at home, and whether that needs an alias.
func TestFound_HomesAndAliases(t *testing.T) {
	id, narrow, now, before := convcache.Key{1}, convcache.Key{2}, convcache.Key{3}, convcache.Key{4}
	named := func(answers int) *request.Conversation {
		return &request.Conversation{Key: id, Narrow: narrow, Content: []convcache.Key{now, before}, Answers: answers}
	}
	unnamed := &request.Conversation{Key: now, Earlier: []convcache.Key{before}, Source: request.SourceContent}
	plain := &request.Conversation{Key: id}
	taken := &convcache.KeyedBranch{}
	for name, row := range map[string]struct {
		looked Found
		of     *request.Conversation
		home   convcache.Key
		due    bool
	}{
		"nothing taken":              {Found{}, named(1), narrow, true},
		"by the id, first answer":    {Found{taken: taken}, named(1), narrow, false},
		"by the id, second answer":   {Found{taken: taken}, named(2), narrow, false},
		"by the id, third answer":    {Found{taken: taken}, named(3), narrow, true},
		"by the id, answers unknown": {Found{taken: taken}, named(0), narrow, true},
		"by content":                 {Found{taken: taken, byContent: true}, named(1), narrow, true},
		"the id is others'":          {Found{taken: taken, byContent: true, foreign: true}, named(1), now, false},
		"no text":                    {Found{taken: taken}, plain, id, false},
		"no id":                      {Found{taken: taken, byContent: true}, unnamed, now, false},
	} {
		home := row.looked.home(row.of)
		if home != row.home {
			t.Errorf("%s: at home under %v, want %v", name, home[0], row.home[0])
		}
		if due := row.looked.needsAlias(row.of); due != row.due {
			t.Errorf("%s: alias due %t, want %t", name, due, row.due)
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
	looked := Found{Branches: []convcache.KeyedBranch{
		branch(earlier, 2, 10, 11),
		branch(earlier, 3, 10, 99), // diverges: its user may come back to it
		branch(key, 4, 10),         // the put has displaced it
		branch(earlier, 5, 10),     // this turn has taken it
		branch(earlier, 6, 20, 21), // of another conversation
	}}
	looked.taken = &looked.Branches[3]
	outdated := looked.outdatedBy(&ticket, key)
	if len(outdated) != 1 || outdated[0].ID != (convcache.TicketID{2}) || outdated[0].Key != earlier {
		t.Errorf("outdated: %+v, want the second ticket", outdated)
	}
}
