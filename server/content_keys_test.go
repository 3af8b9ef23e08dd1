package server_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/server"
)

func byContent(c *server.Config) { c.ByContent = true }

// A client that names no conversation hits from its second turn on, and all turns have one name in the log.
func TestByContent_ConversationWithoutAnIDHits(t *testing.T) {
	ways(t, func(t *testing.T, stream bool) {
		r := newRig(t, setup{cfg: byContent})
		r.wantOK(r.turn("", 1, stream), "miss;reason=first_turn")
		for n := 2; n <= 4; n++ {
			r.wantOK(r.turn("", n, stream), "hit;")
		}
		if n := r.store.Len(); n != 1 {
			t.Errorf("%d conversations are stored, want that of the last turn", n)
		}
		names := map[string]bool{}
		for line := range strings.Lines(r.log.String()) {
			if _, name, ok := strings.Cut(line, `"conversation":"`); ok && strings.Contains(line, `"id_source":"content"`) {
				names[name[:12]] = true
			}
		}
		if len(names) != 1 {
			t.Errorf("names of the conversation: %v, want one\n%s", names, r.log.end())
		}
		for name := range names {
			if out := r.server.Pins.TicketsOut(name); len(out) != 1 {
				t.Errorf("%d tickets are shown under the conversation's name, want that of the last turn", len(out))
			}
		}
	})
}

// What one user has left under the words with which many begin is nothing to another who begins so.
func TestByContent_FirstTurnTakesNothing(t *testing.T) {
	r := newRig(t, setup{cfg: byContent})
	r.turn("", 1, true)
	r.wantOK(r.turn("", 1, true), "miss;reason=first_turn")
	r.wantOK(r.turn("", 2, true), "hit;")
}

// An answer is regenerated out of the ticket of the turn before it, or of its own, cut.
func TestByContent_RegeneratedAnswerLeavesABranch(t *testing.T) {
	r := newRig(t, setup{cfg: byContent})
	for n := 1; n <= 3; n++ {
		r.turn("", n, true)
	}
	r.wantOK(r.turn("", 3, true), "hit;tokens=560") // all blocks of the prompt, and none of the answer
	r.wantOK(r.turn("", 4, true), "hit;")
}

// A client that does not want reuse leaves nothing and finds nothing, with or without an id.
func TestByContent_OffIsOff(t *testing.T) {
	r := newRig(t, setup{cfg: byContent})
	r.turn("", 1, true, "X-Kv-Reuse", "off")
	if r.store.Len() != 0 {
		t.Error("a turn without reuse has left a ticket")
	}
	r.turn("", 1, true)
	r.wantOK(r.turn("", 2, true, "X-Kv-Reuse", "off"), "off")
	r.wantOK(r.turn("", 2, true), "hit;")
}

// A ticket goes back to the key under which it was found if nothing of it was sent, and not to that of the turn that found it.
func TestByContent_UnsentTicketGoesBackToItsKey(t *testing.T) {
	puts, engine := &putKeys{}, &unsent{}
	r := newRig(t, setup{cfg: byContent, deps: func(d *server.Deps) {
		puts.Store, d.Store = d.Store, puts
		engine.Legs, d.Legs = d.Legs, engine
	}})
	r.turn("", 1, true)
	engine.now.Store(true)
	r.wantOK(r.turn("", 2, true), "miss;")
	if len(puts.keys) < 2 || puts.keys[0] != puts.keys[1] {
		t.Errorf("put under %v, want the key of the first turn twice", puts.keys)
	}
}

// putKeys is a store that remembers the keys of its puts.
type putKeys struct {
	server.Store
	keys []convcache.Key
}

func (s *putKeys) Put(ctx context.Context, key convcache.Key, t convcache.Ticket, ttl time.Duration) ([]convcache.Ticket, convcache.Outcome) {
	s.keys = append(s.keys, key)
	return s.Store.Put(ctx, key, t, ttl)
}
