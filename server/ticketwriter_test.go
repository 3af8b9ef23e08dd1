package server_test

import (
	"testing"
	"time"

	"carryover/server"
)

// A store that was not asked, because no time was left for it, has not got the ticket: decode's blocks are released, and nothing counts as
// pinned for a ticket that nobody can find.
func TestPut_WithoutTimeIsNoPut(t *testing.T) {
	r := newRig(t, setup{cfg: func(c *server.Config) { releasing(c); c.StoreTimeout = time.Nanosecond }})
	r.wantOK(r.turn("c", 1, true), "miss;")
	r.wantStored(1, "not_stored")
	if n := r.server.Pins.Pinned(r.engine(r.decode[0])); n != 3*rigBlock { // of the ticket's three blocks, which wait for their release
		t.Errorf("%d tokens are known to be pinned, want those of one answer", n)
	}
	r.shot()
	r.wantCarried(1, left(r.decode[0].seen()[0]))
	r.until(func() bool { return r.server.Pins.Pinned(r.engine(r.decode[0])) == 3*rigBlock }) // of the shot
	r.shot()
	r.wantCarried(2, left(r.decode[0].seen()[1]))
}
