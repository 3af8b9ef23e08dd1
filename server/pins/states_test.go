package pins

import (
	"fmt"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/upstream"
	"carryover/upstream/connector/nixl"
)

// fresh and unuse name blocks, and queue their release.
func fresh(s *states, decode string, parsed upstream.TicketParams) bool {
	return s.try(s.name(decode, &parsed), Named)
}
func unuse(s *states, decode string, parsed upstream.TicketParams) bool {
	return s.try(s.name(decode, &parsed), ReleaseQueued)
}

func TestStates_AreNamedOnce(t *testing.T) {
	b := newStates(time.Hour, nil)
	parsed := upstream.TicketParams{EngineID: "e", RequestID: "r"}
	if fresh(b, "d", parsed); fresh(b, "d", parsed) {
		t.Error("a second ticket of the same blocks passes for the first")
	}
	for name, other := range map[string]upstream.TicketParams{"engine": {EngineID: "x", RequestID: "r"}, "request": {EngineID: "e", RequestID: "x"}, "border": {EngineID: "er", RequestID: ""}} {
		if !fresh(b, "d", other) {
			t.Errorf("another %s passes for the same", name)
		}
	}
	if !fresh(b, "x", parsed) {
		t.Error("another decode instance passes for the same")
	}
	if !unuse(b, "d", parsed) || unuse(b, "d", parsed) {
		t.Error("want one release")
	}
	if fresh(b, "d", parsed) {
		t.Error("blocks that are released pass for fresh ones")
	}
	foreign := upstream.TicketParams{EngineID: "e", RequestID: "of another replica"}
	if !unuse(b, "d", foreign) || unuse(b, "d", foreign) || fresh(b, "d", foreign) {
		t.Error("a ticket that another replica made is released once, and is not fresh")
	}
}

// Names are remembered for at least the time that decode holds blocks, and not for ever.
func TestStates_ForgetInGenerations(t *testing.T) {
	now := time.Now()
	b := newStates(time.Hour, nil)
	b.now = func() time.Time { return now }
	first := upstream.TicketParams{RequestID: "first"}
	fresh(b, "d", first)
	for n := range 10 {
		now = now.Add(b.life / 10)
		if fresh(b, "d", first) {
			t.Fatalf("forgotten after %d tenths of the time", n+1)
		}
		fresh(b, "d", upstream.TicketParams{RequestID: fmt.Sprint(n)})
	}
	now = now.Add(b.life)
	fresh(b, "d", upstream.TicketParams{RequestID: "later"})
	now = now.Add(b.life)
	fresh(b, "d", upstream.TicketParams{RequestID: "much later"})
	if !fresh(b, "d", first) {
		t.Error("remembered for ever")
	}
}

func TestStates_AreBounded(t *testing.T) {
	b := newStates(time.Hour, nil)
	for n := range 3 * maxStates {
		fresh(b, "d", upstream.TicketParams{RequestID: fmt.Sprint(n)})
	}
	if n := len(b.young) + len(b.old); n > 2*maxStates {
		t.Errorf("remembers %d, want %d at most", n, 2*maxStates)
	}
	if fresh(b, "d", upstream.TicketParams{RequestID: fmt.Sprint(3*maxStates - 1)}) || fresh(b, "d", upstream.TicketParams{RequestID: fmt.Sprint(2*maxStates + 1)}) {
		t.Error("the last ones are forgotten")
	}
}

// A ticket that was sent is spent, whether what was read of it came with it or not: a second ticket of its blocks is not released.
func TestStates_OfATicketThatWasSentAreNotReleased(t *testing.T) {
	const raw = `{"do_remote_prefill":false,"do_remote_decode":true,"remote_block_ids":[[1]],"remote_engine_id":"e","remote_request_id":"r","remote_host":"h","remote_port":1,"remote_num_tokens":1}`
	for _, known := range []bool{false, true} {
		r := newReleases(&Config{}, &Deps{Connector: nixl.Connector{}}, newStates(time.Hour, nil), &counts{})
		ticket := convcache.Ticket{Branch: convcache.Branch{Decode: convcache.Holder{Instance: "d"}}, Params: []byte(raw)}
		if known {
			ticket.Reading = &upstream.TicketParams{EngineID: "e", RequestID: "r"}
		}
		r.spent(ticket)
		if unuse(r.states, "d", upstream.TicketParams{EngineID: "e", RequestID: "r"}) {
			t.Errorf("read before %t: its blocks are released after it was sent", known)
		}
	}
}

// of returns the state of blocks.
func (s *states) of(name uint64) State {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state, young := s.young[name]; young {
		return state
	}
	return s.old[name]
}
