package reuse

import (
	"testing"

	"carryover/convcache"
	"carryover/server/record"
	"carryover/server/request"
)

// What is wrong with an id, by what its look-up has shown and whether many conversations begin under it.
func TestFound_FaultOfAnID(t *testing.T) {
	for _, row := range []struct {
		looked  Found
		source  string
		shared  bool
		want    string
		because string
	}{
		{Found{}, "session_id", false, "", "an id that finds its own, or nothing at all"},
		{Found{byContent: true}, request.SourceContent, false, "", "no id"},
		{Found{byContent: true}, "session_id", false, record.NameUnseen, "nothing under the id, and something by content"},
		{Found{byContent: true, foreign: true}, "session_id", false, record.NameShared, "others under the id"},
		{Found{foreign: true}, "session_id", false, record.NameShared, "others under the id, and nothing by content"},
		{Found{}, "session_id", true, record.NameShared, "many beginnings"},
		{Found{byContent: true}, "session_id", true, record.NameShared, "many beginnings, and nothing under the id"},
	} {
		if got := row.looked.fault(&request.Conversation{Source: row.source}, row.shared); got != row.want {
			t.Errorf("%s: got %q, want %q", row.because, got, row.want)
		}
	}
}

// An id of four beginnings is that of many conversations. One whose content is not known tells nothing.
func TestNames_SharedByFourBeginnings(t *testing.T) {
	var n names
	for i, want := range []bool{false, false, false, true, true} {
		c := request.Conversation{Key: convcache.Key{1}, Narrow: convcache.Key{2, byte(i)}, Content: []convcache.Key{{3}}}
		for range 2 {
			if got := n.shared(&c); got != want {
				t.Errorf("beginning %d: shared %t, want %t", i, got, want)
			}
		}
		other := request.Conversation{Key: convcache.Key{9, byte(i)}, Narrow: c.Narrow, Content: c.Content}
		if n.shared(&other) || n.shared(&request.Conversation{Key: c.Key, Narrow: c.Narrow}) {
			t.Error("an id of one beginning, or of none, counts as shared")
		}
	}
	for i := range maxNames {
		n.shared(&request.Conversation{Key: convcache.Key{7, byte(i), byte(i >> 8)}, Content: []convcache.Key{{3}}})
	}
	if len(n.begins) > maxNames {
		t.Errorf("%d ids are known, want %d at most", len(n.begins), maxNames)
	}
}

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
