package journal_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"carryover/server/journal"
	"carryover/server/record"
)

func TestJournal_FindsConversationsByTheClientsID(t *testing.T) {
	j := journal.New(journal.Config{})
	turn := func(id byte, conversation, model string) {
		j.Observe(&record.Turn{Asked: record.Asked{Conversation: conversation, Model: model, ID: [8]byte{id}}})
	}
	turn(1, "aaa", "m")
	turn(1, "bbb", "n") // the same id of another model
	turn(2, "ccc", "m")
	turn(1, "aaa", "m")
	turn(0, "ddd", "m") // without an id
	turn(1, "", "m")
	shown := func(id byte) string {
		var all []string
		for _, n := range j.Named([8]byte{id}) {
			all = append(all, fmt.Sprintf("%s %s %d", n.Conversation, n.Model, n.Turns))
		}
		return strings.Join(all, ", ")
	}
	if got, want := shown(1), "aaa m 2, bbb n 1"; got != want {
		t.Errorf("found %q, want %q", got, want)
	}
	if got := shown(0) + shown(3); got != "" {
		t.Errorf("no id, and one that nobody sent, are found: %q", got)
	}
	for i := range 1000 {
		turn(4, fmt.Sprint(i), "m")
	}
	if got := j.Named([8]byte{4}); len(got) != 100 || got[0].Conversation != "999" {
		t.Errorf("%d conversations of one id, want the newest 100", len(got))
	}
	if text, err := json.Marshal(j.Recent(1)); err != nil || strings.Contains(strings.ToLower(string(text)), `"id"`) {
		t.Errorf("the hash is shown: %s, %v", text, err)
	}
}
