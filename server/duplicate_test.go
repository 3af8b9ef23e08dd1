package server_test

import (
	"net/http"
	"testing"

	"carryover/server"
)

// An engine or a gateway may end an answer twice. A second ticket of the same blocks displaces the first, which is
// released then, and its twin reads what is there by that time.
func TestAnswer_IsKeptOnce(t *testing.T) {
	proofs(t, func(t *testing.T, r *rig, turn func(n int) reply) {
		well := r.decode[0].fallback
		r.decode[0].always(func(w http.ResponseWriter, req *http.Request, l leg) {
			well(w, req, l)
			if l.streams() {
				say(w, "[DONE]")
			}
		})
		puts := r.deps.Store.(*putLog)
		r.wantOK(turn(1), "miss;")
		r.wantStored(1, "yes")
		if n := len(puts.tickets()); n != 1 {
			t.Errorf("got %d puts of one answer, want 1", n)
		}
		r.piggyback()
		r.wantOK(turn(2), "hit;")
	}, setup{cfg: releasing, deps: func(d *server.Deps) { d.Store = &putLog{Store: d.Store} }})
}

// piggyback gives a waiting release the chance to ride on a leg: two that name the same blocks are an error of every rig.
func (r *rig) piggyback() {
	r.t.Helper()
	r.wantOK(r.sendTo(textPath, `{"model":"m","prompt":"x"}`), "miss;reason=no_conversation")
}

// Whatever goes wrong elsewhere, the blocks of one answer are named by one ticket: stored, on its way, or waiting for its
// release.
func TestTickets_OfTheSameBlocksDropOneAnother(t *testing.T) {
	same := func(a *idAnswer) { a.params["remote_request_id"] = "the-same" }
	t.Run("stored", func(t *testing.T) {
		r := newRig(t, setup{cfg: func(c *server.Config) { byTokens(c); releasing(c) }})
		r.inIDs(same)
		r.wantOK(r.sendIDs("c", true, count(100, 200)...), "miss;")
		r.wantStored(1, "yes")
		r.wantOK(r.sendIDs("d", true, count(300, 200)...), "miss;")
		r.wantStored(2, "duplicate")
		r.wantOK(r.sendIDs("c", true, append(count(100, 200), outputIDs()...)...), "hit;")
		r.wantOK(r.sendIDs("d", true, append(count(300, 200), outputIDs()...)...), "miss;")
		if n := r.log.count("name the same blocks", `"level":"ERROR"`); n == 0 {
			t.Errorf("nothing is said of it; log ends with\n%s", r.log.end())
		}
	})
	t.Run("released", func(t *testing.T) {
		r := newRig(t, setup{cfg: func(c *server.Config) { byTokens(c); releasing(c) }})
		r.inIDs(same)
		for range 4 { // without a conversation; each may carry one of those before it
			r.wantOK(r.sendTo(textPath, `{"model":"m","prompt":[1,2,3]}`), "miss;reason=no_conversation")
		}
		r.wantOK(r.sendIDs("c", true, count(100, 200)...), "miss;")
		r.wantStored(5, "duplicate")
	})
	t.Run("used", func(t *testing.T) {
		r := newRig(t, setup{cfg: func(c *server.Config) { byTokens(c); releasing(c) }})
		r.inIDs(same)
		r.wantOK(r.sendIDs("c", true, count(100, 200)...), "miss;")
		r.wantOK(r.sendIDs("c", true, append(count(100, 200), outputIDs()...)...), "hit;")
		r.wantStored(2, "duplicate")
		r.wantOK(r.sendIDs("c", true, append(count(100, 200), outputIDs()...)...), "miss;")
	})
}
