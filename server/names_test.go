package server_test

import (
	"context"
	"fmt"
	"testing"

	"carryover/convcache"
	"carryover/server"
)

// talk is the history of a chat of its own, up to its n-th question.
func talk(name string, n int) []string {
	texts := history(n)
	for i := 0; i < len(texts); i += 2 {
		texts[i] = name + " " + texts[i]
	}
	return texts
}

// Where the conversations of an id have begun with the same words, they part by content from their second question on.
func TestNames_ThatManyShareWhoBeginAlike(t *testing.T) {
	r := newRig(t, setup{cfg: func(c *server.Config) {
		byContent(c)
		c.ReuseMinTokens = 170 // more than what they have in common
	}})
	chat := func(i, n int) string {
		texts := talk(fmt.Sprint("chat ", i), n)
		texts[0] = "Hello"
		return ask("app", false, texts...)
	}
	for i := range 8 {
		r.send(chat(i, 1)) // whose ticket serves all second turns, because the answers are equal
		r.send(chat(i, 2))
	}
	own := map[string]string{} // which chat has left the blocks that a leg names
	for n := 3; n <= 5; n++ {
		for i := range 8 {
			r.wantOK(r.send(chat(i, n)), "hit;")
			prefill, decode := r.prefill[0].seen(), r.decode[0].seen()
			chat := fmt.Sprint("chat ", i)
			if from, known := own[prefill[len(prefill)-1].ticket()]; n > 3 && (!known || from != chat) {
				t.Errorf("%s, turn %d reads what %q has left", chat, n, from)
			}
			own["chatcmpl-"+decode[len(decode)-1].id()] = chat
		}
	}
}

// A ticket has a single use, whatever finds it: see checkLegs.
func TestNames_TicketHasASingleUse(t *testing.T) {
	r := newRig(t, setup{cfg: byContent})
	r.turn("a", 1, true)
	r.wantOK(r.turn("b", 2, true), "hit;")
	r.wantOK(r.turn("a", 2, true), "miss;") // what the turn under b has left is left to the turn behind it
	r.wantOK(r.turn("b", 3, true), "hit;")
}

// looks counts the look-ups of turns.
type looks struct {
	convcache.Store
	n int
}

func (s *looks) Peek(ctx context.Context, keys []convcache.Key) ([]convcache.KeyedBranch, convcache.Outcome) {
	s.n++
	return s.Store.Peek(ctx, keys)
}

// A hit by name asks the store once. What the name does not find is asked for by content, and then where the alias leads.
func TestNames_LookUps(t *testing.T) {
	asked := &looks{}
	r := newRig(t, setup{cfg: byContent, deps: func(d *server.Deps) { asked.Store, d.Store = d.Store, asked }})
	for _, row := range []struct {
		id      string
		n, most int
	}{{"c", 1, 1}, {"c", 2, 1}, {"c", 3, 1}, {"new", 4, 3}, {"c", 5, 3}, {"c", 6, 1}} {
		asked.n = 0
		r.turn(row.id, row.n, true)
		if asked.n != row.most {
			t.Errorf("turn %d under %s: %d look-ups, want %d", row.n, row.id, asked.n, row.most)
		}
	}
}
