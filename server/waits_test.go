package server_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"carryover/server"
	"carryover/upstream/vllmsim"
)

// hangs answers nothing until the gate opens.
func hangs(gate <-chan struct{}) behaviour {
	return waits(gate, func(http.ResponseWriter, *http.Request, leg) {})
}

// soon runs what must not wait for an engine that hangs. What does wait for it waits for as long as patience.
func soon(t *testing.T, what string, run func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		run()
	}()
	select {
	case <-done:
	case <-time.After(patience / 2): // what hangs is given up after patience
		t.Fatal(what)
	}
}

// A release rides along where that costs nothing: a turn does not wait for what it does not need.
func TestPiggyback_AsksNoEngine(t *testing.T) {
	gate := make(chan struct{})
	defer close(gate)
	r := newRig(t, setup{cfg: releasing, decodes: 2})
	r.shot() // leaves something on the first decode instance
	for _, e := range append(r.prefill, r.decode...) {
		r.tell(e, hangs(gate))
	}
	soon(t, "a turn without a conversation waits for /metrics", r.shot)
}

// From prefill's answer on prefill's blocks are leased: decode is dispatched at once.
func TestHandover_WaitsForNothing(t *testing.T) {
	ways(t, func(t *testing.T, stream bool) {
		seam := &legsSeam{}
		r := newRig(t, setup{cfg: byTokens, deps: func(d *server.Deps) { seam.Legs, d.Legs = d.Legs, seam }})
		gate := make(chan struct{})
		t.Cleanup(func() { close(gate) }) // before the engines close, which wait for what hangs
		r.inIDs(nil)
		seam.afterPrefill = func(context.Context) {
			r.tell(r.decode[0], hangs(gate))
			r.tell(r.prefill[0], hangs(gate))
		}
		var p reply
		soon(t, "decode is not dispatched while /metrics hangs", func() { p = r.sendIDs("c", stream, count(100, 200)...) })
		r.wantOK(p, "miss;reason=first_turn")
		r.wantStored(1, "yes") // the incarnation that the leg was sent to is known
	})
}

// What /tokenize makes of a prompt is compared when it is there; decode does not wait for it.
func TestParity_IsLearntInTheBackground(t *testing.T) {
	r, sims := stock(t, func(c *server.Config) { c.StoreTimeout = time.Second },
		func(c *vllmsim.Config) { c.Params = vllmsim.ParamsFinish })
	if err := sims[0].SetFault(vllmsim.Fault{Kind: vllmsim.FaultSilent, Route: "/tokenize"}); err != nil {
		t.Fatal(err)
	}
	var p reply
	soon(t, "decode is not dispatched while /tokenize hangs", func() { p = r.turn("c", 1, true) })
	r.wantOK(p, "miss;reason=first_turn")
	r.wantStored(1, "yes")
	r.client.CloseIdleConnections()
}

// The ids of another request's answer say nothing of this prompt.
func TestParity_IsNotLearntFromAForeignAnswer(t *testing.T) {
	r := newRig(t, setup{cfg: byTokens})
	tells := func(id func(leg) string, ids ...int) behaviour {
		return func(w http.ResponseWriter, _ *http.Request, l leg) {
			answerJSON(w, `{"id":"cmpl-`+id(l)+`","choices":[{"index":0,"text":"w","finish_reason":"length","prompt_token_ids":`+list(ids)+`}],"kv_transfer_params":`+handover(l)+`}`)
		}
	}
	r.prefill[0].tokenize = func(string) string { return `{"count":3,"tokens":[1,2,3]}` }
	r.prefill[0].always(tells(leg.id, 1, 2, 3))
	r.decode[0].always(decodesIDs(nil))
	const request = `{"model":"m","prompt":"abc","stream":true,"conversation_id":"c"}`
	r.wantOK(r.sendTo(textPath, `{"model":"m","prompt":"abc"}`), "miss;") // it answers with the id of the request
	r.prefill[0].next(tells(func(leg) string { return "other" }, 9))
	for range 2 {
		r.wantOK(r.sendTo(textPath, request), "miss;")
	}
	if n := r.log.count("tokenize differs"); n != 0 {
		t.Errorf("the shape is ruled out by a foreign answer; log ends with\n%s", r.log.end())
	}
}
