package server_test

import (
	"net/http"
	"testing"

	"carryover/server"
)

func TestTurn_UnansweredTrialStopsThePair(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{prefills: 2, cfg: func(c *server.Config) { c.ReuseTrialTimeout = soonOver }})
	r.prefill[0].always(refusesTickets(silent))
	r.wantOK(r.turn("c", 1, true), "miss;reason=first_turn")
	r.wantOK(r.turn("c", 2, true), "miss;reason=prefill_not_bidirectional")
	r.prefill[0].awaitEnd(2) // cancelled
	first, second := r.prefill[0].seen(), r.prefill[1].seen()
	if len(first) != 2 || first[1].ticket() == "" || len(second) != 1 || second[0].ticket() != "" || second[0].id() == first[1].id() {
		t.Fatalf("got %d legs on the first and %d on the second, want the second try there, without a ticket", len(first), len(second))
	}
	r.wantOK(r.turn("c", 3, true), "miss;reason=prefill_not_bidirectional")
	if n := r.log.count("does not answer tickets", `"level":"WARN"`); n != 1 || len(r.prefill[0].seen()) != 3 {
		t.Errorf("got %d warnings, want 1, and the instance is as good as any without tickets", n)
	}
}

func TestTurn_OneTrialAtATime(t *testing.T) {
	r := newRig(t, setup{})
	for _, c := range []string{"c", "d"} {
		r.wantOK(r.turn(c, 1, true), "miss;")
	}
	gate := make(chan struct{})
	r.prefill[0].next(waits(gate, prefills))
	trial := make(chan reply, 1)
	go func() { trial <- r.turn("c", 2, true) }()
	r.prefill[0].await(3)
	r.wantOK(r.turn("d", 2, true), "miss;reason=pair_on_trial")
	close(gate)
	r.wantOK(<-trial, "hit;")
	r.wantOK(r.turn("d", 2, true), "hit;") // the ticket of turn 1 is still there
}

func TestTurn_EngineWithoutParamsIsWarnedOfOnce(t *testing.T) {
	r := newRig(t, setup{})
	stock := func(w http.ResponseWriter, _ *http.Request, l leg) {
		events := chatEvents(l)
		events[3] = chunk(l, `{}`, `"stop"`)
		say(w, events...)
	}
	r.decode[0].always(stock)
	r.wantOK(r.turn("c", 1, true), "miss;reason=first_turn")
	for n := 2; n <= 3; n++ {
		r.wantOK(r.turn("c", n, true), "miss;reason=nothing_stored")
	}
	r.wantOK(r.turn("c", 4, true), "miss;reason=engine_sends_no_params")
	r.decode[0].always(decodes)
	r.wantOK(r.turn("c", 5, true), "miss;reason=engine_sends_no_params")
	if n := r.log.count("sends no kv_transfer_params", `"level":"WARN"`); n != 1 {
		t.Errorf("got %d warnings, want 1", n)
	}
	r.wantOK(r.turn("c", 6, true), "hit;")
	r.wantOK(r.turn("new", 2, true), "miss;reason=nothing_stored")
}
