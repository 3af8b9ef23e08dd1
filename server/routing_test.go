package server_test

import (
	"net/http"
	"strings"
	"testing"

	"carryover/server/turn"
	"carryover/upstream"
)

// What counts as prefill's is prefill's work alone, so that a long answer takes none of its places.
func TestPath_PrefillIsGivenBackWithItsAnswer(t *testing.T) {
	ways(t, func(t *testing.T, stream bool) {
		r := newRig(t, setup{})
		gate := make(chan struct{})
		counts := func(prefill, decode int) {
			t.Helper()
			if p, d := r.engine(r.prefill[0]).Live().InFlight, r.engine(r.decode[0]).Live().InFlight; p != prefill || d != decode {
				t.Errorf("got %d attempts on prefill and %d on decode, want %d and %d", p, d, prefill, decode)
			}
		}
		r.prefill[0].always(waits(gate, prefills))
		r.decode[0].always(waits(gate, decodes))
		done := make(chan reply, 1)
		go func() { done <- r.turn("c", 1, stream) }()
		r.prefill[0].await(1)
		counts(1, 1)
		gate <- struct{}{}
		r.decode[0].await(1)
		counts(0, 1)
		close(gate)
		r.wantOK(<-done, "miss;reason=first_turn")
	})
}

// How fast a prefill instance is is learnt from what it has computed of a prompt, without what it took from caches.
func TestPath_SpeedIsLearntFromWhatPrefillComputed(t *testing.T) {
	r, all := recorded(t, setup{})
	r.prefill[0].always(func(w http.ResponseWriter, _ *http.Request, l leg) {
		answerJSON(w, `{"id":"chatcmpl-`+l.id()+`","choices":[],"usage":{"prompt_tokens":1000},"kv_transfer_params":`+
			strings.TrimSuffix(handover(l), "}")+`,"remote_prefill_cached_tokens":999}}`)
	})
	r.wantOK(r.turn("c", 1, true), "prefix;tokens=999;reason=first_turn")
	r.until(func() bool { return len(all()) == 1 })
	took, perToken := all()[0].Leg(upstream.RolePrefill).Took, r.engine(r.prefill[0]).Live().PerToken
	if perToken < took/2 {
		t.Errorf("got %s for a token, want what the leg took for one, %s", perToken, took)
	}
	if perToken := r.engine(r.decode[0]).Live().PerToken; perToken != 0 {
		t.Errorf("got %s for a token of decode", perToken)
	}
}

func TestSetRouting_CountsForTurnsThatBeginThen(t *testing.T) {
	r := newRig(t, setup{})
	gate := make(chan struct{})
	r.prefill[0].next(waits(gate, status(503, "busy")))
	done := make(chan reply, 1)
	go func() { done <- r.turn("c", 1, true) }()
	r.prefill[0].await(1)
	r.server.SetRouting(turn.RoutingConfig{DisaggThreshold: 1000, PrefillFailure: turn.PrefillError})
	r.wantPath(r.turn("d", 1, true), "decode_only;reason=disagg_threshold;tokens=2")
	close(gate)
	p := <-done
	r.wantOK(p, "miss;reason=first_turn")
	r.wantPath(p, "prefill_decode;tokens=2")
	r.server.SetRouting(turn.RoutingConfig{PrefillFailure: turn.PrefillError})
	r.prefill[0].next(status(503, "busy"))
	r.wantError(r.turn("e", 1, true), 503, "prefill_failed")
}
