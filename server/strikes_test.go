package server_test

import (
	"fmt"
	"net/http"
	"testing"

	"carryover/upstream/fleet/pairs"
)

// refusesTickets is a prefill instance that fails legs with a ticket in one way, and serves all others.
func refusesTickets(fails behaviour) behaviour {
	return func(w http.ResponseWriter, r *http.Request, l leg) {
		if l.ticket() != "" {
			fails(w, r, l)
			return
		}
		prefills(w, r, l)
	}
}

// tickets counts the legs of a prefill instance that carried one.
func (e *engine) tickets() int {
	n := 0
	for _, l := range e.seen() {
		if l.ticket() != "" {
			n++
		}
	}
	return n
}

func (r *rig) wantTickets(n int) {
	r.t.Helper()
	if got := r.prefill[0].tickets(); got != n {
		r.t.Errorf("prefill got %d tickets, want %d", got, n)
	}
}

func TestTurn_ThreeRefusedTicketsStopThePair(t *testing.T) {
	r := newRig(t, setup{cfg: byTenant})
	r.server.SpendRetries() // what the ticket has broken is no load of the client's
	r.prefill[0].always(refusesTickets(replyBody("application/json", `{"error":{"message":"x"}}`)))
	r.wantOK(r.turn("c", 1, true), "miss;reason=first_turn")
	for n := 2; n <= 4; n++ {
		r.wantOK(r.turn("c", n, true), "miss;reason=retried_without_ticket")
	}
	r.wantOK(r.turn("c", 5, true), "miss;reason=prefill_not_bidirectional")
	another := []string{"X-Tenant", "another"} // who tries the pair for everybody
	r.wantOK(r.turn("c", 1, true, another...), "miss;reason=first_turn")
	r.wantOK(r.turn("c", 2, true, another...), "miss;reason=retried_without_ticket")
	r.wantOK(r.turn("c", 3, true, another...), "miss;reason=prefill_not_bidirectional")
	r.wantTickets(4)
	if n := r.log.count("answers 5xx to tickets", `"tried_again_in":"1m0s"`, "prefill-0", "decode-0", `"level":"WARN"`); n != 1 {
		t.Errorf("got %d warnings, want 1:\n%s", n, r.log.end())
	}
}

// What is at fault is not the ticket if the request fails without it too, whatever engines say.
func TestTurn_WhatAClientSendsStopsNoPair(t *testing.T) {
	r := newRig(t, setup{fleet: frozen, cfg: byTenant})
	r.server.SpendRetries()
	quiet := []string{"X-Tenant", "quiet"}
	r.wantOK(r.turn("q", 1, true, quiet...), "miss;reason=first_turn")
	r.wantOK(r.turn("q", 2, true, quiet...), "hit;")
	for n := range 2 * pairs.Strikes {
		id := fmt.Sprint("a", n)
		r.wantOK(r.turn(id, 1, true), "miss;reason=first_turn")
		r.prefill[0].next(status(500, "the first"), status(500, "the second"))
		if p := r.turn(id, 2, true); p.status != http.StatusOK && p.status != http.StatusBadGateway {
			t.Fatalf("got %d %s", p.status, p.body)
		}
	}
	r.wantOK(r.turn("q", 3, true, quiet...), "hit;")
	if n := r.log.count("answers 5xx to tickets"); n != 0 {
		t.Errorf("reuse is said to be off:\n%s", r.log.end())
	}
}

// An answered ticket counts when prefill has answered, not when decode has said its last word.
func TestTurn_AnAnswerCountsBeforeTheTurnEnds(t *testing.T) {
	r := newRig(t, setup{})
	for _, c := range []string{"slow", "c"} {
		r.wantOK(r.turn(c, 1, true), "miss;reason=first_turn")
	}
	gate := make(chan struct{})
	r.decode[0].next(waits(gate, decodes))
	slow := make(chan reply, 1)
	go func() { slow <- r.turn("slow", 2, true) }()
	r.decode[0].await(3)
	r.wantOK(r.turn("c", 2, true), "hit;") // the trial is over
	r.prefill[0].always(refusesTickets(status(500, "x")))
	for n := 3; n <= 4; n++ {
		r.wantOK(r.turn("c", n, true), "miss;reason=retried_without_ticket")
	}
	close(gate)
	r.wantOK(<-slow, "hit;")
	r.wantOK(r.turn("c", 5, true), "miss;reason=retried_without_ticket")
	r.wantOK(r.turn("c", 6, true), "miss;reason=prefill_not_bidirectional")
	r.wantTickets(5)
}
