package server_test

import (
	"errors"
	"net/http"
	"slices"
	"testing"

	"carryover/server"
)

// answersNoTickets is a prefill instance without bidirectional_kv_xfer: it parks requests with a ticket for ever.
func answersNoTickets(w http.ResponseWriter, r *http.Request, l leg) {
	if l.ticket() != "" {
		silent(w, r, l)
		return
	}
	prefills(w, r, l)
}

func TestTurn_UnansweredTrialStopsThePair(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{prefills: 2, cfg: func(c *server.Config) { c.ReuseTrialTimeout = soonOver }})
	r.prefill[0].always(answersNoTickets)
	r.wantOK(r.turn("c", 1, true), "miss;reason=first_turn")
	r.wantOK(r.turn("c", 2, true), "miss;reason=prefill_not_bidirectional")
	r.prefill[0].awaitEnd(2) // cancelled
	first, second := r.prefill[0].seen(), r.prefill[1].seen()
	if len(first) != 2 || first[1].ticket() == "" || len(second) != 1 || second[0].ticket() != "" || second[0].id() == first[1].id() {
		t.Fatalf("got %d legs on the first and %d on the second, want the second try there, without a ticket", len(first), len(second))
	}
	for n := 3; n <= 5; n++ {
		r.wantOK(r.turn("c", n, true), "miss;reason=prefill_not_bidirectional")
	}
	if n := r.log.count("does not answer tickets", `"level":"WARN"`); n != 1 {
		t.Errorf("got %d warnings, want 1", n)
	}
	if n := len(r.prefill[0].seen()); n != 5 {
		t.Errorf("got %d legs on the first instance, want 5: it is as good as any without tickets", n)
	}
}

func TestTurn_UnansweredTrialIsRunAgainOnTheOnlyPrefill(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{cfg: func(c *server.Config) { c.ReuseTrialTimeout = soonOver }})
	r.prefill[0].always(answersNoTickets)
	r.wantOK(r.turn("c", 1, false), "miss;")
	r.wantOK(r.turn("c", 2, false), "miss;reason=prefill_not_bidirectional")
}

func TestTurn_ProvenPairIsStoppedAfterThreeUnanswered(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{cfg: func(c *server.Config) { c.ReuseTrialTimeout = soonOver }})
	r.wantOK(r.turn("c", 1, true), "miss;")
	r.wantOK(r.turn("c", 2, true), "hit;")
	r.prefill[0].always(answersNoTickets)
	for n := 3; n <= 6; n++ {
		r.wantOK(r.turn("c", n, true), "miss;reason=prefill_not_bidirectional")
		if got, want := r.log.count("does not answer tickets"), min(1, n/5); got != want {
			t.Errorf("turn %d: got %d warnings, want %d", n, got, want)
		}
	}
	if n := len(r.prefill[0].seen()); n != 2+3*2+1 {
		t.Errorf("got %d prefill legs, want 9: three tickets tried again without, then none offered", n)
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
	// The ticket of turn 1 is still there, and so is that of turn 2.
	r.wantOK(r.send(ask("d", true, "question 1", "Hello world", "another way")), "hit;")
	r.wantOK(r.turn("d", 3, true), "hit;")
}

func TestTurn_TrialThatProvesNothingIsRepeated(t *testing.T) {
	r := newRig(t, setup{})
	r.wantOK(r.turn("c", 1, true), "miss;")
	r.prefill[0].next(status(500, "stale"))
	r.wantOK(r.turn("c", 2, true), "miss;reason=retried_without_ticket")
	r.wantOK(r.turn("c", 3, true), "hit;")
}

func TestTurn_MalformedTicketIsGivenUp(t *testing.T) {
	seam := &connectorSeam{}
	r := newRig(t, setup{deps: func(d *server.Deps) { seam.Connector, d.Connector = d.Connector, seam }})
	r.wantOK(r.turn("c", 1, true), "miss;")
	seam.prefillParams = func(ticket []byte) error {
		if ticket != nil {
			return errors.New("of another version")
		}
		return nil
	}
	r.wantOK(r.turn("c", 2, true), "miss;reason=history_rewritten")
	seam.prefillParams = nil
	r.wantOK(r.turn("c", 3, true), "hit;") // the link is not on trial for ever
	seam.prefillParams = func([]byte) error { return errors.New("none at all") }
	r.wantError(r.turn("c", 4, true), 500, "internal")
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
	for n := 4; n <= 8; n++ {
		r.wantOK(r.turn("c", n, true), "miss;reason=engine_sends_no_params")
	}
	r.until(func() bool { return r.log.count("sends no kv_transfer_params", `"level":"WARN"`) == 1 })
	if n := r.log.count(`"stored":"engine_sends_no_params"`); n != 8 {
		t.Errorf("got %d turns that say why nothing was stored, want 8", n)
	}
	r.decode[0].always(decodes)
	r.wantOK(r.turn("c", 9, true), "miss;reason=engine_sends_no_params")
	if n := r.log.count("sends no kv_transfer_params", `"level":"WARN"`); n != 1 {
		t.Errorf("got %d warnings, want 1", n)
	}
	r.wantOK(r.turn("c", 10, true), "hit;")
	r.wantOK(r.turn("new", 2, true), "miss;reason=nothing_stored")
}

func TestTurn_EnginesWithoutIDsReuseNothing(t *testing.T) {
	r := newRig(t, setup{})
	r.prefill[0].idless, r.decode[0].idless = true, true
	r.wantOK(r.turn("c", 1, true), "miss;reason=ineligible_unproven;why=probe")
	r.wantOK(r.turn("c", 2, true), "miss;reason=ineligible_unproven;why=probe")
	if r.store.Len() != 0 {
		t.Error("a ticket was kept that nothing can prove")
	}
}

// A conversation that has two tickets is told why the better one is not used, not that the other is not worth its reading.
func TestTurn_TheTicketOfMostTokensSaysWhyNothingIsReused(t *testing.T) {
	r := newRig(t, setup{cfg: func(c *server.Config) { byTokens(c); c.ReuseMinTokens = 2 * rigBlock }})
	r.inIDs(nil)
	r.sendIDs("teacher", true, count(1, 100)...) // the incarnations are known then
	prompt := count(1000, 5*rigBlock)
	r.wantOK(r.sendIDs("d", true, prompt...), "miss;reason=first_turn")
	r.wantOK(r.sendIDs("d", true, append(prompt[:rigBlock+5:rigBlock+5], count(8000, 200)...)...), "miss;reason=below_threshold")
	first := count(20000, 5*rigBlock)
	r.wantOK(r.sendIDs("c", true, first...), "miss;reason=first_turn")
	gate := make(chan struct{})
	legs := len(r.prefill[0].seen())
	r.prefill[0].next(waits(gate, prefills))
	trial := make(chan reply, 1)
	go func() { trial <- r.sendIDs("c", true, slices.Concat(first, outputIDs(), count(30000, 30))...) }()
	r.prefill[0].await(legs + 1)
	r.wantOK(r.sendIDs("d", true, slices.Concat(prompt, outputIDs(), count(5000, 30))...), "miss;reason=pair_on_trial")
	close(gate)
	<-trial
}
