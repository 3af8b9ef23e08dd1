package server_test

import (
	"testing"

	"carryover/server"
)

func byContent(c *server.Config) { c.ByContent = true }

// All turns of a conversation without an id have one name, under which its last ticket is shown.
func TestByContent_TurnsHaveOneName(t *testing.T) {
	r := newRig(t, setup{cfg: byContent})
	names := map[any]bool{}
	for n := 1; n <= 4; n++ {
		r.wantOK(r.turn("", n, n%2 == 0), "")
		r.wantStored(n, "yes")
		_, line := r.line()
		names[line["conversation"]] = true
	}
	for name := range names {
		if out := r.server.TicketsOut(name.(string)); len(names) != 1 || len(out) != 1 || r.store.Len() != 1 {
			t.Errorf("names %v, %d tickets are shown under one, want one of one", names, len(out))
		}
	}
}
