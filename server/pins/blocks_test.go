package pins

import (
	"fmt"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/upstream"
	"carryover/upstream/connector/nixl"
)

func TestBlocks_AreNamedOnce(t *testing.T) {
	b := newBlocks(time.Hour)
	parsed := upstream.TicketParams{EngineID: "e", RequestID: "r"}
	if b.fresh("d", parsed); b.fresh("d", parsed) {
		t.Error("a second ticket of the same blocks passes for the first")
	}
	for name, other := range map[string]upstream.TicketParams{"engine": {EngineID: "x", RequestID: "r"}, "request": {EngineID: "e", RequestID: "x"}, "border": {EngineID: "er", RequestID: ""}} {
		if !b.fresh("d", other) {
			t.Errorf("another %s passes for the same", name)
		}
	}
	if !b.fresh("x", parsed) {
		t.Error("another decode instance passes for the same")
	}
	if !b.unuse("d", parsed) || b.unuse("d", parsed) {
		t.Error("want one release")
	}
	if b.fresh("d", parsed) {
		t.Error("blocks that are released pass for fresh ones")
	}
	foreign := upstream.TicketParams{EngineID: "e", RequestID: "of another replica"}
	if !b.unuse("d", foreign) || b.unuse("d", foreign) || b.fresh("d", foreign) {
		t.Error("a ticket that another replica made is released once, and is not fresh")
	}
}

// Names are remembered for at least the time that decode holds blocks, and not for ever.
func TestBlocks_ForgetInGenerations(t *testing.T) {
	now := time.Now()
	b := newBlocks(time.Hour)
	b.now = func() time.Time { return now }
	first := upstream.TicketParams{RequestID: "first"}
	b.fresh("d", first)
	for n := range 10 {
		now = now.Add(b.life / 10)
		if b.fresh("d", first) {
			t.Fatalf("forgotten after %d tenths of the time", n+1)
		}
		b.fresh("d", upstream.TicketParams{RequestID: fmt.Sprint(n)})
	}
	now = now.Add(b.life)
	b.fresh("d", upstream.TicketParams{RequestID: "later"})
	now = now.Add(b.life)
	b.fresh("d", upstream.TicketParams{RequestID: "much later"})
	if !b.fresh("d", first) {
		t.Error("remembered for ever")
	}
}

func TestBlocks_AreBounded(t *testing.T) {
	b := newBlocks(time.Hour)
	for n := range 3 * maxBlocks {
		b.fresh("d", upstream.TicketParams{RequestID: fmt.Sprint(n)})
	}
	if n := len(b.young) + len(b.old); n > 2*maxBlocks {
		t.Errorf("remembers %d, want %d at most", n, 2*maxBlocks)
	}
	if b.fresh("d", upstream.TicketParams{RequestID: fmt.Sprint(3*maxBlocks - 1)}) || b.fresh("d", upstream.TicketParams{RequestID: fmt.Sprint(2*maxBlocks + 1)}) {
		t.Error("the last ones are forgotten")
	}
}

// A ticket that was sent is spent, whether what was read of it came with it or not: a second ticket of its blocks is not released.
func TestBlocks_OfATicketThatWasSentAreNotReleased(t *testing.T) {
	const raw = `{"do_remote_prefill":false,"do_remote_decode":true,"remote_block_ids":[[1]],"remote_engine_id":"e","remote_request_id":"r","remote_host":"h","remote_port":1,"remote_num_tokens":1}`
	for _, known := range []bool{false, true} {
		r := newReleases(&Config{}, &Deps{Connector: nixl.Connector{}}, newBlocks(time.Hour), &counts{})
		ticket := convcache.Ticket{Decode: "d", Params: []byte(raw)}
		if known {
			ticket.Reading = &upstream.TicketParams{EngineID: "e", RequestID: "r"}
		}
		r.Spent(ticket)
		if r.blocks.unuse("d", upstream.TicketParams{EngineID: "e", RequestID: "r"}) {
			t.Errorf("read before %t: its blocks are released after it was sent", known)
		}
	}
}
