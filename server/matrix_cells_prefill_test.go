package server_test

import (
	"net/http"
	"strings"

	"carryover/server/turn"
)

// Prefill legs that fail.

// reuseOf is X-KV-Reuse of a turn with a ticket, and of one that is its conversation's first.
func reuseOf(v variant, withTicket string) string {
	if v.ticket {
		return withTicket
	}
	return "miss;reason=first_turn"
}

// served is a turn with a hand-over to decode, as if nothing had happened.
func served(v variant) want {
	return want{path: pathBoth, reuse: reuseOf(v, "hit;tokens=200;"), prefill: "first", decode: "handed", stored: "yes", kept: true}
}

// retried is a turn that a fresh prefill leg without the ticket has saved.
func retried(v variant) want {
	return want{path: pathBoth, reuse: reuseOf(v, "miss;reason=retried_without_ticket"), prefill: "first plain", decode: "handed", stored: "yes", kept: true}
}

// The beginnings of X-KV-Path.
const (
	pathBoth        = "prefill_decode;tokens="
	pathFailed      = "decode_only;reason=prefill_failed;tokens="
	pathUnavailable = "decode_only;reason=prefill_unavailable;tokens="
	pathConnector   = "decode_only;reason=connector;tokens="
)

// alone is a turn that decode served by itself after these prefill legs had failed.
func alone(legs string) want {
	return want{path: pathFailed, reuse: "miss;reason=bypass", prefill: legs, decode: "alone", stored: "no_handover", unused: true}
}

// failed is an error that the client gets after these prefill legs; the ticket is spent.
func failed(status int, code, legs string) want {
	return want{status: status, code: code, prefill: legs}
}

// notSent is a turn whose prefill leg reached no engine: the ticket is where it was.
func notSent(v variant) want {
	w := alone("")
	w.path, w.kept = pathUnavailable, v.ticket
	return w
}

// prefillDialFaults are those of connections to prefill instances.
func prefillDialFaults() []fault {
	const phase = "prefill is dialled"
	none := func(v variant) want {
		if v.mode != turn.PrefillError {
			return notSent(v)
		}
		w := failed(http.StatusServiceUnavailable, "prefill_unavailable", "")
		w.retryAfter, w.kept = "1", v.ticket
		return w
	}
	other := func(v variant) want {
		if !v.retries() {
			return none(v)
		}
		w := served(v)
		w.prefill = "first@1"
		return w
	}
	first := func(do func(d *door)) func(*cell) {
		return func(c *cell) {
			c.deps.Legs.Close()
			do(c.prefill[0].door)
		}
	}
	short := shortDials
	return []fault{
		{row: "B-01", phase: phase, name: "all refuse", modes: true, needs: withDoors, begin: first((*door).shut), want: none},
		{row: "B-01", phase: phase, name: "black hole", modes: true, needs: both(withDoors, short), begin: first((*door).hole), want: none},
		{row: "B-01", phase: phase, name: "one of two refuses", modes: true, needs: both(withDoors, twoPrefills), begin: first((*door).shut), want: other},
		{row: "B-01", phase: phase, name: "one of two is a black hole", modes: true, needs: both(withDoors, twoPrefills, short), begin: first((*door).hole), want: other},
		{
			row: "B-01", phase: phase, name: "all refuse, and sixteen turns are alone at decode", needs: withDoors, begin: first((*door).shut),
			ask: (*cell).beyondSixteen,
			want: func(v variant) want {
				w := failed(http.StatusServiceUnavailable, "prefill_unavailable", "")
				w.retryAfter, w.kept, w.unused = "1", v.ticket, true
				w.decode = strings.TrimSpace(strings.Repeat("alone ", 17))
				return w
			},
		},
	}
}

// beyondSixteen sends the turn while decode serves sixteen alone, and another turn when it has done so.
func (c *cell) beyondSixteen() reply {
	c.t.Helper()
	const most = 16
	decode := c.decode[0]
	decode.always(waits(c.gate, decodes))
	answers := make(chan reply, most)
	for range most {
		go func() { answers <- c.send(ask("", c.stream, "q")) }()
	}
	decode.await(c.before[decode] + most)
	p := c.again()
	c.release()
	for range most {
		c.wantOK(<-answers, "miss;reason=")
	}
	c.settled(most + 2)
	c.wantOK(c.send(ask("", c.stream, "q")), "miss;reason=")
	c.settled(most + 3)
	return p
}

// prefillRefusals are answers that a second try can't mend.
func prefillRefusals() []fault {
	const phase = "prefill answers"
	row := func(id, name string, act behaviour, w want) fault {
		w.prefill = "first"
		return fault{row: id, phase: phase, name: name, begin: next(ofPrefill, act), want: func(variant) want { return w }}
	}
	inModes := func(f fault) fault {
		f.modes = true
		return f
	}
	faults := []fault{
		inModes(row("B-05", "400", status(400, "bad"), failed(400, "invalid_request", ""))),
		row("B-05", "404", status(404, "bad"), failed(404, "invalid_request", "")),
		row("B-05", "413", status(413, "bad"), failed(413, "invalid_request", "")),
		row("B-05", "422", status(422, "bad"), failed(422, "invalid_request", "")),
		row("B-06", "401", status(401, "key sk-123 at "+engineHost), failed(502, "upstream_auth", "")),
		row("B-06", "403", status(403, "key sk-123 at "+engineHost), failed(502, "upstream_auth", "")),
		inModes(row("B-07", "429 with Retry-After", status(429, "busy", "Retry-After", "9"), want{status: 429, code: "rate_limited", retryAfter: "9"})),
		row("B-07", "429 without", status(429, "busy"), want{status: 429, code: "rate_limited", retryAfter: "1"}),
	}
	for _, code := range []int{301, 302, 307, 308} {
		faults = append(faults, row("B-11", "redirect "+http.StatusText(code), redirects(code), failed(502, "prefill_failed", "")))
	}
	return faults
}

// failing is a way in which a prefill leg fails that another leg may mend.
type failing struct {
	row, name  string
	act        behaviour
	status     int    // as the client is told
	retryAfter string // and when to come back
	broken     bool   // nothing was answered, which says nothing of a ticket
	lastWord   bool   // the same engine would say it again
}

// prefillFailures are faults of the engine: once, with every leg, and of one instance of two.
func prefillFailures() (faults []fault) {
	const phase = "prefill answers"
	for _, f := range []failing{
		{row: "B-03", name: "500", act: status(500, "KV load failed"), status: 502, lastWord: true},
		{row: "B-03", name: "502", act: status(502, "x"), status: 502},
		{row: "B-03", name: "503", act: status(503, "x", "Retry-After", "7"), status: 503, retryAfter: "7"},
		{row: "B-03", name: "504", act: status(504, "x"), status: 502},
		{row: "B-09", name: "200 with an error", act: replyBody("application/json", `{"error":{"message":"boom at `+engineHost+`","code":500}}`), status: 502, lastWord: true},
		{row: "B-04", name: "reset", act: resets, status: 502, broken: true},
		{row: "B-04", name: "end of the connection", act: hangUp, status: 502, broken: true},
		{row: "B-17", name: "no HTTP", act: raw("hello\r\n\r\n"), status: 502, broken: true},
		{row: "B-17", name: "bad length", act: raw("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"), status: 502, broken: true},
		{row: "B-17", name: "bad chunk", act: raw(okJSON + "Transfer-Encoding: chunked\r\n\r\nzz\r\n"), status: 502, broken: true},
		{row: "B-17", name: "short of its length", act: raw(okJSON + "Content-Length: 500\r\n\r\n{\"id\":"), status: 502, broken: true},
	} {
		framing := f.row == "B-17" // differs in nothing behind the leg from a reset
		faults = append(faults,
			fault{row: f.row, phase: phase, name: f.name + ", once", modes: !framing, begin: next(ofPrefill, f.act), want: f.once},
			fault{row: "B-04", phase: phase, name: f.name + ", always", modes: !framing, begin: always(ofPrefill, f.act), want: f.always},
		)
		if !framing {
			faults = append(faults, fault{
				row: "B-04", phase: phase, name: f.name + ", of one instance of two", modes: true, needs: twoPrefills,
				begin: func(c *cell) { c.prefill[0].always(f.act) }, want: f.ofOne,
			})
		}
	}
	return faults
}

// mended reports whether the fresh leg without the ticket is run whatever the mode is: the fault was ours.
func (f *failing) mended(v variant) bool { return v.ticket && !f.broken }

func (f *failing) once(v variant) want {
	switch {
	case f.mended(v), v.retries() && (v.ticket || !f.lastWord):
		return retried(v)
	case v.mode == turn.PrefillError:
		return f.error("first")
	}
	return alone("first")
}

func (f *failing) always(v variant) want {
	legs := "first"
	if f.mended(v) || v.retries() && !f.lastWord {
		legs = "first plain"
	}
	if v.mode == turn.PrefillError {
		return f.error(legs)
	}
	return alone(legs)
}

func (f *failing) ofOne(v variant) want {
	if v.retries() || f.mended(v) {
		w := retried(v)
		w.prefill = "first plain@1"
		return w
	}
	return f.always(v)
}

// error is what the client is told.
func (f *failing) error(legs string) want {
	w := failed(f.status, "prefill_failed", legs)
	w.retryAfter = f.retryAfter
	return w
}

// prefillAnswers are answers with status 200 that are of no use to decode, or look as if.
func prefillAnswers() (faults []fault) {
	const phase = "prefill answers"
	unread := func(v variant) want {
		if v.mode == turn.PrefillError {
			return failed(502, "bad_prefill_answer", "first")
		}
		w := alone("first")
		w.reuse = reuseOf(v, "hit;") // prefill may have read its blocks
		return w
	}
	for _, f := range []struct {
		name  string
		act   behaviour
		modes bool
	}{
		{"garbage", replyBody("application/json", "<html>"), true},
		{"truncated JSON", replyBody("application/json", `{"id":`), false},
		{"an array", replyBody("application/json", `[]`), false},
		{"nothing", replyBody("application/json", ""), false},
		{"another content type", replyBody("text/html", `{"id":"x"}`), true},
		{"an event stream", replyBody("text/event-stream", "data: {}\n\n"), false},
		{"gzip", replyBody("application/json", zipped(`{"id":"x"}`), "Content-Encoding", "gzip"), false},
		{"a ticket for a hand-over", answers(func(l leg) string { return `,"kv_transfer_params":` + ticket(l) }), true},
		{"a hand-over without an address", answers(func(l leg) string {
			return `,"kv_transfer_params":` + strings.Replace(handover(l), "remote_host", "host", 1)
		}), false},
		{"empty params", answers(func(leg) string { return `,"kv_transfer_params":{}` }), false},
	} {
		faults = append(faults, fault{row: "B-08", phase: phase, name: f.name, modes: f.modes, begin: next(ofPrefill, f.act), want: unread})
	}
	for _, f := range []struct {
		name    string
		members func(l leg) string
	}{
		{"no params", func(leg) string { return `,"choices":[]` }},
		{"null params", func(leg) string { return `,"kv_transfer_params":null` }},
	} {
		faults = append(faults, fault{row: "B-10", phase: phase, name: f.name, begin: next(ofPrefill, answers(f.members)), want: func(v variant) want {
			w := alone("first")
			w.path, w.reuse = pathConnector, reuseOf(v, "hit;") // prefill has read its blocks
			return w
		}})
	}
	return append(faults,
		fault{row: "B-08", phase: phase, name: "17 MiB", heavy: true, except: once, begin: next(ofPrefill, func(w http.ResponseWriter, _ *http.Request, _ leg) {
			answerJSON(w, `{"x":"`+strings.Repeat("y", 17<<20)+`"}`)
		}), want: unread},
		fault{row: "B-11", phase: phase, name: "100, 103 and a trailer around 200", begin: next(ofPrefill, prefaced(prefills)), want: served},
		fault{row: "B-02", phase: phase, name: "slowly but in time", begin: next(ofPrefill, func(w http.ResponseWriter, r *http.Request, l leg) {
			drips(okJSON+whole(withIDs(l, `{"id":"chatcmpl-`+l.id()+`","kv_transfer_params":`+handover(l)+`}`)), stays)(w, r, l)
		}), want: served},
	)
}

// unasked is a turn whose question for the ids of its prompt has met the fault, in place of a leg.
func unasked(prefill string) want {
	return want{path: pathBoth, reuse: "miss;reason=tokenize_failed", prefill: prefill, decode: "handed", stored: "yes", kept: true, unused: true}
}

// outwaited is a turn that prefill has not answered within its limit: decode may serve it alone.
func outwaited(v variant, legs string) want {
	if v.mode == turn.PrefillError {
		return failed(http.StatusGatewayTimeout, "prefill_timeout", legs)
	}
	return alone(legs)
}

// prefillTimeouts are legs that prefill does not answer.
func prefillTimeouts() (faults []fault) {
	const phase = "prefill is waited for"
	for _, f := range []struct {
		row, name string
		begin     func(*cell)
		unseen    bool // by the engine
	}{
		{"B-02", "silent", next(ofPrefill, silent), false},
		{"B-02", "headers that never end", next(ofPrefill, drips("HTTP/1.1 200 OK\r\nX-A: ", forEver)), false},
		{"B-02", "accepts and reads nothing", atLeg(ofPrefill, (*door).silence), true},
		{"B-51", "its machine is gone", func(c *cell) { c.prefill[0].door.freeze() }, true},
	} {
		first := "first "
		if f.unseen {
			first = ""
		}
		over := "nothing_stored"
		faults = append(faults,
			fault{row: f.row, phase: phase, name: f.name, modes: f.name == "silent", needs: both(withDoors, limited(shortPrefill())), begin: f.begin, want: func(v variant) want {
				if v.ticket && f.name == "its machine is gone" {
					return unasked("plain")
				}
				w := outwaited(v, strings.TrimSpace(first))
				if w.next = "miss;reason=" + over; v.ticket { // the engine did not answer a ticket
					w.pair = "miss;reason=prefill_not_bidirectional"
				}
				return w
			}},
		)
		if strings.HasPrefix(f.name, "accepts") {
			continue // the fresh leg is not read either
		}
		faults = append(faults,
			fault{row: f.row, phase: phase, name: f.name + " to a ticket", needs: both(withDoors, limited(shortTrial())), begin: f.begin, except: onlyTickets, want: func(variant) want {
				const off = "miss;reason=prefill_not_bidirectional"
				if f.name == "its machine is gone" {
					return unasked("plain")
				}
				return want{path: pathBoth, reuse: off, prefill: first + "plain", decode: "handed", stored: "yes", kept: true, next: off, pair: off}
			}},
		)
	}
	return faults
}

// slowFaults are those of prefill that take seconds: its answer has ten once it has begun.
func slowFaults() []fault {
	const phase = "prefill's answer is read"
	unfinished := func(v variant) want {
		w := outwaited(v, "first")
		w.pair = "miss;reason=prefill_not_bidirectional"
		return w
	}
	return []fault{
		{row: "B-02", phase: phase, name: "a body that stops", begin: next(ofPrefill, holds(func(leg) string { return okJSON + "Content-Length: 500\r\n\r\n{" })), except: once, want: unfinished},
		{row: "B-02", phase: phase, name: "a body that never ends", begin: next(ofPrefill, drips(okJSON+"Content-Length: 50000\r\n\r\n{", forEver)), except: once, want: unfinished},
	}
}
