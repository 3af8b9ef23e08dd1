package server_test

import (
	"cmp"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"carryover/server"
	"carryover/server/turn"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// frozen is a fleet's clock that stands still, so that what is open stays so.
func frozen(c *fleet.Config) {
	now := time.Now()
	c.Now = func() time.Time { return now }
}

// state is what the fleet says of an engine.
func (r *rig) state(e *engine) string { return r.engine(e).Live().State }

// errorEvent is a stream of which the engine says in the middle that it has failed.
func errorEvent(code string) behaviour {
	return func(w http.ResponseWriter, _ *http.Request, l leg) {
		say(w, append(chatEvents(l)[:2], `{"error":{"message":"x","type":"t","param":null,"code":`+code+`}}`, "[DONE]")...)
	}
}

// Which ends of a leg open the circuit of its engine, and which don't: the status of a turn does not tell. Rescues neither open it nor
// keep it closed.
func TestBlame_WhatOpensAnEnginesCircuit(t *testing.T) {
	t.Parallel()
	type row struct {
		role upstream.Role
		act  behaviour
		want string
		legs int // until then, 5 if 0
	}
	const apart = 8 // three hand-overs that may have been prefill's fault, and legs of decode alone behind each of them and later
	prefill, decode := upstream.RolePrefill, upstream.RoleDecode
	rows := map[string]row{
		"prefill 500":             {prefill, status(500, "x"), "open", 0},
		"prefill 502":             {prefill, status(502, "x"), "open", 0},
		"prefill 503":             {prefill, status(503, "x", "Retry-After", "1"), "open", 0},
		"prefill breaks":          {prefill, hangUp, "open", 0},
		"prefill garbage":         {prefill, replyBody("application/json", `{"half`), "open", 0},
		"prefill no JSON":         {prefill, replyBody("text/html", `<html>`), "open", 0},
		"prefill error with 200":  {prefill, replyBody("application/json", `{"error":{"message":"x"}}`), "open", 0},
		"prefill foreign":         {prefill, replyBody("application/json", `{"id":"chatcmpl-other"}`), "open", 0},
		"prefill silent":          {prefill, silent, "open", 0},
		"prefill 501":             {prefill, status(501, "x"), "up", 0},
		"prefill 400":             {prefill, status(400, "x"), "up", 0},
		"prefill 401":             {prefill, status(401, "x"), "up", 0},
		"prefill 429":             {prefill, status(429, "x"), "up", 0},
		"prefill 302":             {prefill, status(302, "x"), "up", 0},
		"prefill without params":  {prefill, replyBody("application/json", `{}`), "up", 0},
		"decode 500":              {decode, status(500, "x"), "open", 10}, // a leg with a hand-over and one without in each turn
		"decode 504":              {decode, status(504, "x"), "open", 0},
		"decode breaks":           {decode, hangUp, "open", 0},
		"decode no stream":        {decode, replyBody("text/html", `<html>`), "open", 0},
		"decode breaks in stream": {decode, breaks(firstEvents(3), ""), "open", 0},
		"decode breaks in event":  {decode, breaks(firstEvents(3), "data: {"), "open", 0},
		"decode breaks at once":   {decode, breaks(nothing, ""), "open", 0},
		"decode says 500":         {decode, errorEvent("500"), "open", 0},
		"decode says an error":    {decode, errorEvent("null"), "open", 0},
		"decode cannot load KV": {decode, func(w http.ResponseWriter, _ *http.Request, l leg) {
			say(w, chatEvents(l)[0], `{"error":{"message":"x","code":500}}`, "[DONE]")
		}, "open", apart},
		"decode silent":           {decode, where(leg.rescues, decodes, silent), "open", 0}, // a rescue outlasts the test otherwise
		"decode says 400":         {decode, errorEvent("400"), "up", 0},
		"decode 501":              {decode, status(501, "x"), "up", 0},
		"decode 404":              {decode, status(404, "x"), "up", 0},
		"decode 429":              {decode, status(429, "x"), "up", 0},
		"decode ends without end": {decode, func(w http.ResponseWriter, _ *http.Request, l leg) { say(w, chatEvents(l)[:3]...) }, "open", 0},
		"decode sends no [DONE]":  {decode, func(w http.ResponseWriter, _ *http.Request, l leg) { say(w, chatEvents(l)[:4]...) }, "up", 0},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{fleet: frozen, cfg: func(c *server.Config) {
				switch name { // an engine has seen all legs by then
				case "prefill silent":
					c.PrefillTimeout = soonOver
				case "decode silent":
					c.FirstByteTimeout = soonOver
				}
			}})
			engine, other, limit := r.prefill[0], r.decode[0], cmp.Or(row.legs, 5)
			if row.role == decode {
				engine, other = other, engine
			}
			if name == "prefill silent" {
				limit = 1 // see TestBlame_APrefillEngineThatAnswersNoLeg
			}
			if !strings.HasSuffix(name, "silent") { // with the limit of an ordinary turn
				r.wantOK(r.turn("", 1, true), "miss;")
				limit++
			}
			engine.always(row.act)
			for ; len(engine.ofClients()) < limit; r.turn("", 1, true) {
				if state := r.state(engine); state != "up" {
					t.Fatalf("%s after %d legs of %d, want up", state, len(engine.ofClients()), limit)
				}
			}
			r.until(func() bool { return r.state(engine) == row.want }) // an answer of 500 opens it when a question has failed, too
			want := "up"
			if row.legs == apart || name == "decode silent" {
				want = "apart"
			}
			if got := r.state(other); got != want {
				t.Errorf("the other engine is %s, want %s", got, want)
			}
		})
	}
}

// A prefill engine that answers no leg in all the time that it has is out of rotation at once; one that answers another leg meanwhile
// is not, however long one prompt takes.
func TestBlame_APrefillEngineThatAnswersNoLeg(t *testing.T) {
	t.Parallel()
	for _, busy := range []bool{false, true} {
		r := newRig(t, setup{cfg: func(c *server.Config) { c.PrefillTimeout = soonOver }})
		r.prefill[0].always(where(func(l leg) bool { return strings.Contains(l.body, "endless") }, func(w http.ResponseWriter, q *http.Request, l leg) {
			if busy {
				r.engine(r.prefill[0]).Health.Answered() // another leg
			}
			silent(w, q, l)
		}, prefills))
		r.send(ask("", false, "endless"))
		if got := r.state(r.prefill[0]); (got == "up") != busy {
			t.Errorf("it is %s, want up: %t", got, busy)
		}
	}
}

// An answer closes the circuit, and the end of a stream is what counts: headers are sent by engines that break later, too.
func TestBlame_ServedLegsCloseTheCircuit(t *testing.T) {
	clock := &clock{}
	r := newRig(t, setup{fleet: func(c *fleet.Config) { c.Now = clock.now }})
	r.decode[0].always(breaks(firstEvents(3), ""))
	for n := 0; n < 9 && r.state(r.decode[0]) == "up"; n++ {
		r.turn("", 1, true)
	}
	want := func(want string) {
		t.Helper()
		if got := r.state(r.decode[0]); got != want {
			t.Errorf("it is %s, want %s", got, want)
		}
	}
	want("open")
	clock.advance(r, 40*time.Second)
	want("half_open")
	gate := make(chan struct{})
	r.decode[0].always(pausing(chatEvents, 3, gate))
	resp := r.opens(t.Context(), chatPath, ask("", true, "q"))
	_, _ = io.ReadFull(resp.Body, make([]byte, 10))
	want("half_open")
	if r.deps.Fleet.Up(upstream.RoleDecode) != 1 {
		t.Error("with a stream under way it is not ready for another turn")
	}
	close(gate)
	r.wantOK(r.rest(resp), "miss;")
	want("up") // after a whole stream
}

// A client that leaves says nothing of an engine.
func TestBlame_NotForClientsThatLeave(t *testing.T) {
	r := newRig(t, setup{fleet: frozen})
	r.decode[0].always(pausing(chatEvents, 3, nil))
	for n := 1; n <= 6; n++ {
		resp := r.opens(t.Context(), chatPath, ask("", true, "q"))
		_, _ = resp.Body.Read(make([]byte, 10))
		_ = resp.Body.Close()
		r.until(func() bool { return r.lines() == n })
	}
	if got := r.state(r.decode[0]); got != "up" {
		t.Errorf("it is %s, want up", got)
	}
}

// What a ticket of ours has broken is blamed on the link, which is stopped.
func TestBlame_NotForTickets(t *testing.T) {
	r := newRig(t, setup{fleet: frozen, cfg: func(c *server.Config) { c.PrefillFailure = turn.PrefillError }})
	conversations := []string{"a", "b", "c"}
	for _, c := range conversations {
		r.wantOK(r.turn(c, 1, true), "miss;")
	}
	r.prefill[0].next(status(500, "x"), status(500, "x"))
	for range 2 {
		r.wantError(r.turn("", 1, true), 502, "prefill_failed")
	}
	r.prefill[0].always(where(func(l leg) bool { return l.ticket() != "" }, status(500, "KV load failed"),
		status(400, "x"))) // which neither adds a failure nor forgets those before
	for _, c := range conversations {
		r.wantError(r.turn(c, 2, true), 400, "invalid_request")
	}
	r.wantTickets(3)
	if got := r.state(r.prefill[0]); got != "up" {
		t.Errorf("it is %s, want up", got)
	}
	r.prefill[0].always(status(500, "x"))
	for range 3 {
		r.wantError(r.turn("", 1, true), 502, "prefill_failed")
	}
	r.until(func() bool { return r.state(r.prefill[0]) == "open" }) // the two failures before were not forgotten
}

// Legs that run together end together: only the one that failed is blamed. If decode's stream has begun, the client gets nothing of it.
func TestBlame_NotForTheOtherLeg(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{}, 1)
	for name, row := range map[string]struct {
		fails  behaviour
		status int
		code   string
	}{
		"breaks": {hangUp, 502, "prefill_failed"}, "500": {status(500, "x"), 502, "prefill_failed"}, "silent": {silent, 504, "prefill_timeout"},
		"breaks under a stream": {waits(begun, hangUp), 502, "prefill_failed"},
	} {
		t.Run(name, func(t *testing.T) {
			r := togetherRig(t, setup{fleet: frozen, cfg: func(c *server.Config) {
				if c.PrefillFailure = turn.PrefillError; name == "silent" {
					c.PrefillTimeout = soonOver
				}
			}})
			r.decode[0].always(func(w http.ResponseWriter, q *http.Request, l leg) {
				if name == "breaks under a stream" {
					say(w, textEvents(l)[:1]...)
					begun <- struct{}{}
				}
				silent(w, q, l)
			})
			r.prefill[0].always(row.fails)
			for len(r.prefill[0].seen()) < 5 {
				r.wantError(r.sendTo(textPath, asking(true)), row.status, row.code)
			}
			r.until(func() bool { return r.state(r.prefill[0]) == "open" })
			if d := r.state(r.decode[0]); d != "up" {
				t.Errorf("decode is %s, want up", d)
			}
		})
	}
}
