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

func TestPrefillFailure_OfTheOnlyInstance(t *testing.T) {
	for _, row := range []struct {
		name       string
		fails      behaviour
		status     int // as it is told
		code       string
		retryAfter string
		legs       int // while another is tried
	}{
		{"500 is its last word", status(500, "boom"), 502, "prefill_failed", "", 1},
		{"502", status(502, "boom"), 502, "prefill_failed", "", 2},
		{"503", status(503, "boom", "Retry-After", "7"), 503, "prefill_failed", "7", 2},
		{"503 with a date", status(503, "boom", "Retry-After", "Wed, 21 Oct 2026 07:28:00 GMT"), 503, "prefill_failed", "1", 2},
		{"503 with a long wait", status(503, "boom", "Retry-After", "301"), 503, "prefill_failed", "1", 2},
		{"504", status(504, "boom"), 502, "prefill_failed", "", 2},
		{"hang-up", hangUp, 502, "prefill_failed", "", 2},
		{"error body", replyBody("application/json", `{"error":{"message":"boom"}}`), 502, "prefill_failed", "", 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t, setup{})
			r.prefill[0].always(row.fails)
			p := r.turn("c", 1, true)
			r.wantOK(p, "miss;reason=bypass")
			r.wantPath(p, failedAlone)
			r.wantLegs(1, row.legs)

			r = newRig(t, setup{cfg: onPrefillFailure(turn.PrefillDecodeOnly)})
			r.prefill[0].always(row.fails)
			p = r.turn("c", 1, true)
			r.wantOK(p, "miss;reason=bypass")
			r.wantPath(p, failedAlone)
			r.wantLegs(1, 1)

			r = newRig(t, setup{cfg: onPrefillFailure(turn.PrefillError)})
			r.prefill[0].always(row.fails)
			p = r.turn("c", 1, true)
			r.wantError(p, row.status, row.code)
			wantRetryAfter(t, p, row.retryAfter)
			r.wantLegs(0, 1)
			r.wantHeaders(p)
		})
	}
}

func TestPrefillFailure_AnotherInstanceIsTriedWhereThereIsOne(t *testing.T) {
	for name, fails := range map[string]behaviour{"500": status(500, "boom"), "503": status(503, "boom"), "hang-up": hangUp} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{prefills: 3})
			r.prefill[0].always(fails)
			p := r.turn("c", 1, true)
			r.wantOK(p, "miss;reason=first_turn")
			r.wantPath(p, "prefill_decode;tokens=2")
			r.prefill[1].always(fails)
			p = r.turn("d", 1, true)
			r.wantPath(p, failedAlone)
			r.wantLegs(2, 2, 2, 0) // two instances are tried, whatever there is

			for policy, legs := range map[turn.PrefillFailure]int{turn.PrefillDecodeOnly: 1, turn.PrefillError: 0} {
				r = newRig(t, setup{prefills: 2, cfg: onPrefillFailure(policy)})
				r.prefill[0].always(fails)
				_ = r.turn("c", 1, true)
				r.wantLegs(legs, 1, 0)
			}
		})
	}
}

func TestPrefillFailure_ConnectionsAreRefused(t *testing.T) {
	const alone = "decode_only;reason=prefill_unavailable;tokens=2"
	r := newRig(t, setup{deadPrefills: -4})
	r.wantPath(r.turn("c", 1, true), alone)

	r = newRig(t, setup{deadPrefills: 1, cfg: onPrefillFailure(turn.PrefillDecodeOnly)})
	r.wantPath(r.turn("c", 1, true), alone)
	r.wantLegs(1, 0)

	r = newRig(t, setup{deadPrefills: 1, cfg: onPrefillFailure(turn.PrefillError)})
	p := r.turn("c", 1, true)
	r.wantError(p, http.StatusServiceUnavailable, "prefill_unavailable")
	wantRetryAfter(t, p, "1")
	r.wantLegs(0, 0)
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

// What the client can mend, what our key may not and what the deployment can't take now is never masked.
func TestPrefillFailure_RefusalsArePassedOn(t *testing.T) {
	for _, policy := range []turn.PrefillFailure{turn.PrefillRetryOther, turn.PrefillDecodeOnly, turn.PrefillError} {
		for answer, want := range map[int]int{400: 400, 404: 404, 413: 413, 422: 422, 401: 502, 403: 502, 429: 429} {
			r := newRig(t, setup{prefills: 2, cfg: onPrefillFailure(policy)})
			r.prefill[0].always(status(answer, "no"))
			if p := r.turn("c", 1, true); p.status != want {
				t.Errorf("%s: got status %d for %d, want %d", policy, p.status, answer, want)
			}
			r.wantLegs(0, 1, 0)
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
