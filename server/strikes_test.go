package server_test

import (
	"fmt"
	"net/http"
	"testing"

	"carryover/server"
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
	for name, fails := range map[string]behaviour{
		"500": status(500, "KV load failed"), "501": status(501, ""), "503": status(503, ""), "599": status(599, ""),
		"200 with error": replyBody("application/json", `{"error":{"message":"x"}}`),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{cfg: byTenant})
			r.server.SpendRetries() // what the ticket has broken is no load of the client's
			r.prefill[0].always(refusesTickets(fails))
			r.wantOK(r.turn("c", 1, true), "miss;reason=first_turn")
			for n := 2; n <= 4; n++ {
				r.wantOK(r.turn("c", n, true), "miss;reason=retried_without_ticket")
			}
			for n := 5; n <= 6; n++ {
				r.wantOK(r.turn("c", n, true), "miss;reason=prefill_not_bidirectional")
			}
			r.wantTickets(3)
			another := []string{"X-Tenant", "another"} // who tries the pair for everybody
			r.wantOK(r.turn("c", 1, true, another...), "miss;reason=first_turn")
			r.wantOK(r.turn("c", 2, true, another...), "miss;reason=retried_without_ticket")
			r.wantOK(r.turn("c", 3, true, another...), "miss;reason=prefill_not_bidirectional")
			r.wantTickets(4)
			if n := r.log.count("answers 5xx to tickets", `"tried_again_in":"1m0s"`, "prefill-0", "decode-0", `"level":"WARN"`); n != 1 {
				t.Errorf("got %d warnings, want 1:\n%s", n, r.log.end())
			}
		})
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

// Idle connections that prefill closes under legs cost these their tickets, and the link nothing.
func TestTurn_BrokenConnectionsDoNotStopThePair(t *testing.T) {
	r := newRig(t, setup{})
	r.wantOK(r.turn("c", 1, true), "miss;reason=first_turn")
	for n := 2; n <= 6; n++ {
		r.prefill[0].next(hangUp)
		r.wantOK(r.turn("c", n, true), "miss;reason=retried_without_ticket")
	}
	r.wantOK(r.turn("c", 7, true), "hit;")
}

// Decode serves the turn alone, without a fresh leg, and the next turns need not wait in vain.
func TestTurn_TicketThatOutlastsThePrefillLimitIsUnanswered(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{cfg: func(c *server.Config) { c.PrefillTimeout = soonOver }})
	r.prefill[0].always(refusesTickets(silent))
	r.wantOK(r.turn("c", 1, true), "miss;reason=first_turn")
	r.wantOK(r.turn("c", 2, true), "miss;reason=bypass")
	r.wantOK(r.turn("c", 2, true), "miss;reason=nothing_stored")
	r.wantOK(r.turn("c", 3, true), "miss;reason=prefill_not_bidirectional")
	r.wantTickets(1)
}

// What breaks connections is a fault of the deployment, whatever the leg carried.
func TestRetry_AfterABrokenConnectionCostsBudget(t *testing.T) {
	r := newRig(t, setup{})
	r.wantOK(r.turn("c", 1, true), "miss;reason=first_turn")
	r.server.SpendRetries()
	r.prefill[0].next(hangUp)
	p := r.turn("c", 2, true)
	r.wantPath(p, "decode_only;reason=prefill_failed;tokens=7")
	if n := len(r.prefill[0].seen()); n != 2 {
		t.Errorf("got %d prefill legs, want no second one of the turn", n)
	}
}

// Decode reads what prefill has computed, with or without a ticket.
func TestRetry_AfterDecodeFailedCostsBudget(t *testing.T) {
	r := newRig(t, setup{})
	r.wantOK(r.turn("c", 1, true), "miss;reason=first_turn")
	r.server.SpendRetries()
	r.decode[0].next(status(500, "KV load"))
	r.wantError(r.turn("c", 2, true), 502, "decode_failed")
	r.wantTickets(1)
}
