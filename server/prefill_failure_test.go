package server_test

import (
	"net/http"
	"strings"
	"testing"

	"carryover/server"
	"carryover/server/turn"
)

// onPrefillFailure says what becomes of a turn whose prefill leg failed.
func onPrefillFailure(policy turn.PrefillFailure) func(*server.Config) {
	return func(c *server.Config) { c.PrefillFailure = policy }
}

const failedAlone = "decode_only;reason=prefill_failed;tokens=2"

// wantLegs checks how many legs each prefill instance has seen, and that decode alone got no params.
func (r *rig) wantLegs(decode int, prefill ...int) {
	r.t.Helper()
	for i, want := range prefill {
		if got := len(r.prefill[i].seen()); got != want {
			r.t.Errorf("got %d legs on prefill instance %d, want %d", got, i, want)
		}
	}
	legs := r.decode[0].seen()
	if len(legs) != decode {
		r.t.Errorf("got %d decode legs, want %d", len(legs), decode)
	}
	if decode > 0 && strings.Contains(legs[len(legs)-1].body, "kv_transfer_params") {
		r.t.Errorf("decode alone got %s", legs[len(legs)-1].body)
	}
}

// What was put into the leg beside the client's request is ours to mend, whatever the operator has chosen.
func TestPrefillFailure_OfATicketIsMended(t *testing.T) {
	for _, policy := range []turn.PrefillFailure{"", turn.PrefillRetryOther, turn.PrefillDecodeOnly, turn.PrefillError} {
		r := newRig(t, setup{cfg: onPrefillFailure(policy)})
		r.wantOK(r.turn("c", 1, true), "miss;reason=first_turn")
		r.prefill[0].next(status(500, "boom"))
		p := r.turn("c", 2, true)
		r.wantOK(p, "miss;reason=retried_without_ticket")
		r.wantPath(p, "prefill_decode;tokens=7")
		if got := len(r.prefill[0].seen()); got != 3 {
			t.Errorf("%q: got %d prefill legs, want 3: exactly one retry", policy, got)
		}
		r.prefill[0].always(status(500, "boom"))
		p = r.turn("c", 3, true)
		if got := len(r.prefill[0].seen()); got != 5 {
			t.Errorf("%q: got %d prefill legs, want 5: no third leg", policy, got)
		}
		if policy == turn.PrefillError {
			r.wantError(p, http.StatusBadGateway, "prefill_failed")
		} else {
			r.wantOK(p, "miss;reason=bypass")
		}
	}
}

func TestPrefillFailure_OfAnIDEchoIsMended(t *testing.T) {
	for _, policy := range []turn.PrefillFailure{turn.PrefillRetryOther, turn.PrefillDecodeOnly, turn.PrefillError} {
		r := newRig(t, setup{prefills: 2, cfg: func(c *server.Config) { byTokens(c); c.PrefillFailure = policy }})
		r.inIDs(nil)
		r.prefill[0].always(func(w http.ResponseWriter, _ *http.Request, l leg) {
			answerJSON(w, `{"id":"cmpl-`+l.id()+`","choices":[{"prompt_token_ids":[1]}],"kv_transfer_params":`+handover(l)+`}`)
		})
		p := r.sendIDs("c", true, count(100, 200)...)
		r.wantPath(p, "prefill_decode;tokens=200")
		// With none left, decode serves, or prefill does with a salt of the turn's own.
		r.quarantine(r.prefill[1])
		p = r.sendIDs("d", true, count(100, 200)...)
		if policy == turn.PrefillError {
			r.wantPath(p, "prefill_decode;tokens=200")
		} else {
			r.wantPath(p, "decode_only;reason=prefill_quarantined;tokens=200")
		}
	}
}

func TestPrefillFailure_WithoutAHandOver(t *testing.T) {
	for name, row := range map[string]struct {
		answers behaviour
		code    string
	}{
		"no JSON":      {replyBody("application/json", "<html>"), "bad_prefill_answer"},
		"bad params":   {replyBody("application/json", `{"id":"x","kv_transfer_params":{}}`), "bad_prefill_answer"},
		"no params":    {replyBody("application/json", `{"id":"x","choices":[]}`), ""},
		"content type": {replyBody("text/html", `{"id":"x"}`), "bad_prefill_answer"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{})
			r.prefill[0].always(row.answers)
			p := r.turn("c", 1, true)
			r.wantOK(p, "miss;reason=first_turn")
			if row.code == "" {
				r.wantPath(p, "decode_only;reason=connector;tokens=2")
				return
			}
			r.wantPath(p, failedAlone)
			r = newRig(t, setup{cfg: onPrefillFailure(turn.PrefillError)})
			r.prefill[0].always(row.answers)
			r.wantError(r.turn("c", 1, true), http.StatusBadGateway, row.code)
			r.wantLegs(0, 1)
		})
	}
}

// Beyond the turns that decode may prefill at once the client is told to come back, whatever prefill has said.
func TestPrefillFailure_TurnsOfDecodeAloneAreBounded(t *testing.T) {
	for _, policy := range []turn.PrefillFailure{turn.PrefillRetryOther, turn.PrefillDecodeOnly} {
		r := newRig(t, setup{cfg: onPrefillFailure(policy)})
		gate := make(chan struct{})
		r.prefill[0].always(status(500, "boom"))
		r.decode[0].always(waits(gate, decodes))
		answers := make(chan reply, 16)
		for range 16 {
			go func() { answers <- r.turn("", 1, false) }()
		}
		r.decode[0].await(16)
		p := r.turn("", 1, false)
		r.wantError(p, http.StatusServiceUnavailable, "prefill_unavailable")
		wantRetryAfter(t, p, "1")
		close(gate)
		for range 16 {
			r.wantOK(<-answers, "miss;")
		}
		for range 20 { // their places are free again
			r.wantOK(r.turn("", 1, false), "miss;")
		}
	}
}
