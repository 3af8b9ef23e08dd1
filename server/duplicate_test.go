package server_test

import (
	"testing"

	"carryover/server"
)

// piggyback gives a waiting release the chance to ride on a leg: two that name the same blocks are an error of every rig.
func (r *rig) piggyback() {
	r.t.Helper()
	r.wantOK(r.sendTo(textPath, `{"model":"m","prompt":"x"}`), "miss;reason=no_conversation")
}

// Whatever goes wrong elsewhere, the blocks of one answer are named by one ticket.
func TestTickets_OfTheSameBlocksDropOneAnother(t *testing.T) {
	r := newRig(t, setup{cfg: func(c *server.Config) { byTokens(c); releasing(c) }})
	r.inIDs(func(a *idAnswer) { a.params["remote_request_id"] = "the-same" })
	r.wantOK(r.sendIDs("c", true, count(100, 200)...), "miss;")
	r.wantStored(1, "yes")
	r.wantOK(r.sendIDs("d", true, count(300, 200)...), "miss;")
	r.wantStored(2, "duplicate")
	r.wantOK(r.sendIDs("c", true, continued(count(100, 200))...), "hit;")
	r.wantOK(r.sendIDs("d", true, continued(count(300, 200))...), "miss;")
	if r.log.count("name the same blocks", `"level":"ERROR"`) == 0 {
		t.Errorf("nothing is said of it; log ends with\n%s", r.log.end())
	}
}
