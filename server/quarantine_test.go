package server_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"carryover/convcache"
	"carryover/server"
	"carryover/server/events"
	"carryover/server/turn"
	"carryover/upstream"
)

// quarantine quarantines the incarnation of a prefill engine of the rig.
func (r *rig) quarantine(e *engine) { r.engine(e).Last().Quarantine() }

// computes is a prefill engine that says that it has computed other ids than it was sent.
func computes(ids func(l leg) []int) behaviour {
	return func(w http.ResponseWriter, _ *http.Request, l leg) {
		answerJSON(w, `{"id":"cmpl-`+l.id()+`","choices":[{"index":0,"text":"w","finish_reason":"length","prompt_token_ids":`+list(ids(l))+`}],"kv_transfer_params":`+handover(l)+`}`)
	}
}

// others are other ids than a leg names.
func others(l leg) []int {
	ids := answerOf(l).prompt
	ids[0]++
	return ids
}

// oneID is what an engine computes whatever it is sent.
func oneID(leg) []int { return []int{1} }

// takesOtherIDs is a prefill engine that computes other ids than it is sent when it is sent any with a ticket.
var takesOtherIDs = computes(func(l leg) []int {
	if l.ticket() == "" {
		return l.prompt()
	}
	return others(l)
})

func TestQuarantine_NoLegOfAnyClientGoesThere(t *testing.T) {
	told := make(chan string, 100)
	r := newRig(t, setup{prefills: 2, cfg: func(c *server.Config) {
		byTokens(c)
		c.Tell = func(kind events.Kind, sentence string) {
			if kind == events.Quarantine {
				told <- sentence
			}
		}
	}})
	r.inIDs(nil)
	r.prefill[0].always(takesOtherIDs)
	prompt := count(100, 200)
	r.wantOK(r.sendIDs("c", true, prompt...), "miss;")
	r.wantOK(r.sendIDs("c", true, append(prompt, outputIDs()...)...), "miss;reason=retried_without_ticket")
	if got, want := <-told, "Prefill "+r.engine(r.prefill[0]).Name+" is quarantined until it is restarted: it computed other ids than it was sent."; got != want || len(told) != 0 {
		t.Errorf("operators are told %q, want %q once", got, want)
	}
	before := len(r.prefill[0].seen())
	r.prefill[1].wantLegs(1)
	for n := range 3 {
		r.wantOK(r.sendIDs("c", true, count(100*n, 200)...), "")
		r.wantOK(r.sendTo(textPath, `{"model":"m","prompt":[1,2,3]}`, "Authorization", "Bearer of another tenant"), "miss;")
		r.wantOK(r.send(ask("", true, "plain")), "miss;")
	}
	r.prefill[0].wantLegs(before)
	if p := r.get("/readyz"); p.status != http.StatusOK || !strings.Contains(p.body, `"quarantined":1`) {
		t.Errorf("got %d %s, want it to tell of the quarantine", p.status, p.body)
	}
	// The quarantine ends with the incarnation.
	r.prefill[0].always(prefillsIDs)
	r.tell(r.prefill[0], metricsOf("1.6e+09", rigBlock))
	r.deps.Fleet.Engines(upstream.RolePrefill)[0].Refresh(t.Context())
	r.wantOK(r.sendIDs("new", true, prompt...), "miss;")
	r.prefill[0].wantLegs(before + 1)
	if p := r.get("/readyz"); strings.Contains(p.body, "quarantined") {
		t.Errorf("got %s after the restart", p.body)
	}
}

func TestQuarantine_TheOnlyPrefill_DecodeServesAloneThenWithASaltOfItsOwn(t *testing.T) {
	gate := make(chan struct{})
	r := newRig(t, setup{})
	r.quarantine(r.prefill[0])
	r.decode[0].always(waits(gate, decodes))
	const alone = 16 // turns that decode may prefill by itself
	done := make(chan reply, alone+2)
	turn := func(n int) {
		go func() { done <- r.turn(fmt.Sprint("c", n), 1, true) }()
		r.decode[0].await(n + 1)
	}
	for n := range alone {
		turn(n)
	}
	r.prefill[0].wantLegs(0)
	turn(alone)
	turn(alone + 1)
	close(gate)
	for range alone + 2 {
		r.wantOK(<-done, "miss;reason=quarantined")
	}
	var salts []string
	for _, l := range append(r.prefill[0].seen(), r.decode[0].seen()...) {
		if l.params() != nil {
			salts = append(salts, saltIn(l))
		}
	}
	if len(salts) != 4 || salts[0] != salts[2] || salts[1] != salts[3] || salts[0] == salts[1] || salts[0] == "" || salts[1] == "" {
		t.Errorf("got salts %q, want one for both legs of each turn", salts)
	}
	if r.store.Len() != 0 {
		t.Error("a quarantined prefill left a ticket")
	}
}

// A turn that was on its way when the quarantine came is not sent there any more.
func TestQuarantine_BetweenPickAndLeg(t *testing.T) {
	seam := &storeSeam{}
	r := newRig(t, setup{prefills: 2, cfg: releasing, deps: func(d *server.Deps) { seam.Store, d.Store = d.Store, seam }})
	r.wantOK(r.turn("c", 1, true), "miss;")
	r.shot() // leaves an unused ticket, whose release would be piggybacked on the next leg
	seam.take = func(context.Context) (convcache.Outcome, bool) {
		r.quarantine(r.prefill[0])
		return convcache.Consumed, true
	}
	r.wantOK(r.turn("c", 2, true), "miss;")
	r.prefill[0].wantLegs(2)
	if waiting, _, _ := r.server.Pins.Due(r.engine(r.decode[0])); waiting == 0 {
		t.Error("nothing of decode waits for a release")
	}
}

// A turn whose id echo was wrong ends with that failure if no other instance is left.
func TestQuarantine_AndNoInstanceIsLeft(t *testing.T) {
	r := newRig(t, setup{cfg: byTokens})
	r.inIDs(nil)
	prompt := count(100, 200)
	r.wantOK(r.sendIDs("c", true, prompt...), "miss;")
	r.prefill[0].always(func(w http.ResponseWriter, req *http.Request, l leg) {
		r.deps.Fleet.Set([]upstream.Instance{*r.engine(r.prefill[0]).Instance()})
		takesOtherIDs(w, req, l)
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience/2)
	defer cancel()
	p := r.do(ctx, http.MethodPost, textPath, strings.NewReader(askIDs("c", true, append(prompt, outputIDs()...)...)))
	r.wantError(p, http.StatusBadGateway, "prefill_failed")
	if n := r.log.count("trying again"); n != 1 {
		t.Errorf("got %d further attempts, want 1", n)
	}
}

// The ids of such a prompt are known without a ticket too. Neither leg may answer for other ids than the client's.
func TestQuarantine_ByAPromptOfIDsWithoutATicket(t *testing.T) {
	prompt := count(100, 200)
	for name, tc := range map[string]struct {
		request     string
		quarantined bool
	}{
		"ids":               {askIDs("c", true, prompt...), true},
		"unusual spellings": {strings.Replace(askIDs("c", true, prompt...), "[100,", "[100.0,", 1), false}, // which the engine reads as it likes
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{prefills: 2, cfg: byTokens})
			r.inIDs(nil)
			r.prefill[0].always(computes(others))
			r.wantOK(r.sendTo(textPath, tc.request), "miss;")
			if quarantined := r.engine(r.prefill[0]).Quarantined(); quarantined != tc.quarantined {
				t.Errorf("quarantined: %v, want %v", quarantined, tc.quarantined)
			}
			if first := answerOf(r.decode[0].seen()[0]).prompt[0]; tc.quarantined && first != prompt[0] {
				t.Errorf("decode got a prompt that begins with %d, want the client's %d", first, prompt[0])
			}
		})
	}
}

// An address whose incarnations come and go costs a turn a few attempts.
func TestQuarantine_IDEchoesAreNotAskedForWithoutEnd(t *testing.T) {
	r := newRig(t, setup{cfg: byTokens})
	r.inIDs(nil)
	starts := 0
	r.prefill[0].always(func(w http.ResponseWriter, _ *http.Request, l leg) {
		starts++
		r.tell(r.prefill[0], metricsOf(fmt.Sprintf("1.%de+09", starts+5), rigBlock))
		r.deps.Fleet.Engines(upstream.RolePrefill)[0].Refresh(t.Context())
		computes(oneID)(w, nil, l)
	})
	r.wantError(r.sendIDs("c", true, count(100, 200)...), http.StatusBadGateway, "prefill_failed")
	r.prefill[0].wantLegs(4)
}

// A connector that sends both legs at once keeps off a quarantined instance too, when the quarantine comes while the prompt is tokenised.
func TestQuarantine_WhileThePromptIsTokenised(t *testing.T) {
	r := togetherRig(t, setup{prefills: 2})
	tokenise := r.prefill[0].tokenize
	r.prefill[1].tokenize = tokenise
	r.prefill[0].tokenize = func(prompt string) string {
		r.quarantine(r.prefill[0])
		return tokenise(prompt)
	}
	r.prefill[1].always(r.prefill[0].fallback)
	r.wantOK(r.sendTo(textPath, asking(true)), "miss;")
	r.prefill[0].wantLegs(0)
}

// An id echo that is wrong is mended whatever the operator wants of failures of prefill.
func TestQuarantine_OfAnIDEchoIsMended(t *testing.T) {
	for _, policy := range []turn.PrefillFailure{turn.PrefillRetryOther, turn.PrefillDecodeOnly, turn.PrefillError} {
		r := newRig(t, setup{prefills: 2, cfg: func(c *server.Config) { byTokens(c); c.PrefillFailure = policy }})
		r.inIDs(nil)
		r.prefill[0].always(computes(oneID))
		r.wantPath(r.sendIDs("c", true, count(100, 200)...), "prefill_decode;tokens=200")
		// With none left, decode serves, or prefill does with a salt of the turn's own.
		r.quarantine(r.prefill[1])
		r.wantPath(r.sendIDs("d", true, count(100, 200)...), map[bool]string{true: "prefill_decode;tokens=200", false: "decode_only;reason=prefill_quarantined;tokens=200"}[policy == turn.PrefillError])
	}
}

func TestQuarantine_IsLoggedUntilTheRestart(t *testing.T) {
	r := newRig(t, setup{prefills: 2})
	mentioned := func() int {
		return r.log.count("prefill is quarantined; restart it", `"level":"WARN"`, r.prefill[0].name)
	}
	r.quarantine(r.prefill[0])
	r.server.CompareQuarantines(t.Context())
	if n := mentioned(); n != 0 {
		t.Errorf("mentioned %d times at once, want not before the first reminder", n)
	}
	for n := 1; n <= 3; n++ {
		if r.server.Remind(t.Context()); mentioned() != n {
			t.Errorf("mentioned %d times by %d reminders", mentioned(), n)
		}
	}
	r.tell(r.prefill[0], metricsOf("1.6e+09", rigBlock))
	r.engine(r.prefill[0]).Refresh(t.Context())
	if r.server.Remind(t.Context()); mentioned() != 3 {
		t.Error("mentioned behind the restart")
	}
}
