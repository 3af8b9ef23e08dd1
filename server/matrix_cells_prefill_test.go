package server_test

import (
	"fmt"
	"net/http"
	"strings"

	"carryover/upstream"
)

// Prefill legs that fail.

// What is expected of turns, see expects.
const (
	// All is as if nothing had happened.
	served = "path=prefill_decode;tokens= reuse=miss;reason=first_turn ticket:reuse=hit;tokens=200; prefill=first decode=handed stored=yes kept"
	// A fresh prefill leg without the ticket has saved it.
	retried = served + " ticket:reuse=miss;reason=retried_without_ticket prefill=first,plain"
	// Its question for the ids of its prompt has met the fault, in place of a leg.
	unasked = served + " ticket:reuse=miss;reason=tokenize_failed prefill=plain unused"
	// Decode served it by itself.
	alone = "path=" + pathFailed + " reuse=miss;reason=bypass decode=alone stored=no_handover unused"
	// Decode did so after a prefill leg had failed.
	thenAlone = alone + " prefill=first"
	// Decode did so because the prefill leg reached no engine.
	notSent   = alone + " path=" + pathUnavailable + " ticket:kept"
	noPrefill = "status=503 code=prefill_unavailable retry=1 ticket:kept"

	notBidirectional = "miss;reason=prefill_not_bidirectional"
)

// The beginnings of X-KV-Path.
const (
	pathBoth        = "prefill_decode;tokens="
	pathFailed      = "decode_only;reason=prefill_failed;tokens="
	pathUnavailable = "decode_only;reason=prefill_unavailable;tokens="
)

// prefillDialFaults are those of connections to prefill instances.
func prefillDialFaults() []fault {
	const other = served + " prefill=first@1"
	first := func(do func(d *door)) func(*cell) {
		return func(c *cell) {
			c.deps.Legs.Close()
			do(c.prefill[0].door)
		}
	}
	return during("prefill is dialled",
		row("B-01", "all refuse", first((*door).shut), notSent, inModes(notSent, noPrefill), withDoors),
		row("B-01", "black hole", first((*door).hole), notSent, inModes(notSent, noPrefill), withDoors, shortDials),
		row("B-01", "one of two refuses", first((*door).shut), other, inModes(notSent, noPrefill), withDoors, twoPrefills),
		row("B-01", "one of two is a black hole", first((*door).hole), other, inModes(notSent, noPrefill), withDoors, twoPrefills, shortDials),
		row("B-01", "all refuse, and sixteen turns are alone at decode", first((*door).shut), noPrefill+" unused decode=alone"+strings.Repeat(",alone", 16),
			withDoors, asks((*cell).beyondSixteen)),
	)
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
func prefillRefusals() (faults []fault) {
	refused := func(id, name string, act behaviour, want string, options ...option) {
		faults = append(faults, row(id, name, next(ofPrefill, act), "prefill=first "+want, options...))
	}
	refused("B-05", "400", status(400, "bad"), "status=400 code=invalid_request", inModes())
	for _, code := range []int{404, 413, 422} {
		refused("B-05", fmt.Sprint(code), status(code, "bad"), fmt.Sprintf("status=%d code=invalid_request", code))
	}
	for _, code := range []int{401, 403} {
		refused("B-06", fmt.Sprint(code), status(code, "key sk-123 at "+engineHost), "status=502 code=upstream_auth")
	}
	refused("B-07", "429 with Retry-After", status(429, "busy", "Retry-After", "9"), "status=429 code=rate_limited retry=9", inModes())
	refused("B-07", "429 without", status(429, "busy"), "status=429 code=rate_limited retry=1")
	for _, code := range []int{301, 302, 307, 308} {
		refused("B-11", "redirect "+http.StatusText(code), redirects(code), "status=502 code=prefill_failed")
	}
	return during("prefill answers", faults...)
}

// prefillFailures are faults of the engine that another leg may mend: once, with every leg, and of one instance of two.
func prefillFailures() (faults []fault) {
	for _, f := range []struct {
		row, name string
		act       behaviour
		broken    bool   // nothing was answered, which says nothing of a ticket
		lastWord  bool   // the same engine would say it again
		status    string // as the client is told, if it is not 502
	}{
		{"B-03", "500", status(500, "KV load failed"), false, true, ""},
		{"B-03", "502", status(502, "x"), false, false, ""},
		{"B-03", "503", status(503, "x", "Retry-After", "7"), false, false, " status=503 retry=7"},
		{"B-03", "504", status(504, "x"), false, false, ""},
		{"B-09", "200 with an error", replyBody("application/json", `{"error":{"message":"boom at `+engineHost+`","code":500}}`), false, true, ""},
		{"B-04", "reset", resets, true, false, ""},
		{"B-04", "end of the connection", hangUp, true, false, ""},
		{"B-17", "no HTTP", raw("hello\r\n\r\n"), true, false, ""},
		{"B-17", "bad length", raw("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"), true, false, ""},
		{"B-17", "bad chunk", raw(okJSON + "Transfer-Encoding: chunked\r\n\r\nzz\r\n"), true, false, ""},
		{"B-17", "short of its length", raw(okJSON + "Content-Length: 500\r\n\r\n{\"id\":"), true, false, ""},
	} {
		failed := "status=502 code=prefill_failed" + f.status + " prefill=first"
		// A fresh leg without the ticket is run whatever the mode is, if the ticket may have been at fault: it was ours.
		fails := func(id, times string, begin func(*cell), retry, saved, told string, options ...option) {
			saved, told = saved+"|"+thenAlone, told+"|"+failed
			if f.broken {
				saved, told = thenAlone, failed
			}
			if f.row != "B-17" { // which differs in nothing behind the leg from a reset
				options = append(options, inModes(saved, told))
			}
			faults = append(faults, row(id, f.name+", "+times, begin, retry, options...))
		}
		const twice, elsewhere = thenAlone + ",plain", retried + "@1"
		mended, still := retried, twice
		if f.lastWord {
			mended, still = retried+"|"+thenAlone, twice+"|"+thenAlone
		}
		fails(f.row, "once", next(ofPrefill, f.act), mended, retried, retried)
		fails("B-04", "always", always(ofPrefill, f.act), still, twice, failed+",plain")
		if f.row != "B-17" {
			fails("B-04", "of one instance of two", func(c *cell) { c.prefill[0].always(f.act) }, elsewhere, elsewhere, elsewhere, twoPrefills)
		}
	}
	return during("prefill answers", faults...)
}

// prefillAnswers are answers with status 200 that are of no use to decode, or look as if.
func prefillAnswers() (faults []fault) {
	const unread = thenAlone + " reuse=miss;reason=first_turn ticket:reuse=hit;" // prefill may have read its blocks
	add := func(id, name string, act behaviour, want string, options ...option) {
		faults = append(faults, row(id, name, next(ofPrefill, act), want, options...))
	}
	useless := func(name string, act behaviour, options ...option) { add("B-08", name, act, unread, options...) }
	inAll := inModes(unread, "status=502 code=bad_prefill_answer prefill=first")
	json := func(body string, header ...string) behaviour { return replyBody("application/json", body, header...) }
	useless("garbage", json("<html>"), inAll)
	useless("truncated JSON", json(`{"id":`))
	useless("an array", json(`[]`))
	useless("nothing", json(""))
	useless("another content type", replyBody("text/html", `{"id":"x"}`), inAll)
	useless("an event stream", replyBody("text/event-stream", "data: {}\n\n"))
	useless("gzip", json(zipped(`{"id":"x"}`), "Content-Encoding", "gzip"))
	useless("a ticket for a hand-over", answers(func(l leg) string { return `,"kv_transfer_params":` + ticket(l) }), inAll)
	useless("a hand-over without an address", answers(func(l leg) string {
		return `,"kv_transfer_params":` + strings.Replace(handover(l), "remote_host", "host", 1)
	}))
	useless("empty params", answers(same(`,"kv_transfer_params":{}`)))
	useless("17 MiB", json(`{"x":"`+strings.Repeat("y", 17<<20)+`"}`), heavy, once)
	for name, members := range map[string]string{"no params": `,"choices":[]`, "null params": `,"kv_transfer_params":null`} {
		add("B-10", name, answers(same(members)), unread+" path=decode_only;reason=connector;tokens=")
	}
	add("B-11", "100, 103 and a trailer around 200", prefaced(prefills), served)
	add("B-02", "slowly but in time", drips(prefilled, stays), served)
	return during("prefill answers", faults...)
}

// prefilled is a good answer of prefill as it goes over the wire.
func prefilled(l leg) string {
	return okJSON + whole(withIDs(l, `{"id":"chatcmpl-`+l.id()+`","kv_transfer_params":`+handover(l)+`}`))
}

// prefillTimeouts are legs that prefill does not answer: decode may serve the turn alone.
func prefillTimeouts() (faults []fault) {
	pair := " ticket:pair=" + notBidirectional // the engine did not answer a ticket
	add := func(id, name string, begin func(*cell), want string, options ...option) {
		options = append(options, withDoors, limited(shortLimits{prefill: upstream.ErrPrefillTimeout}))
		faults = append(faults, row(id, name, begin, want+pair, options...))
	}
	toATicket := func(id, name string, begin func(*cell), want string) {
		faults = append(faults, row(id, name+" to a ticket", begin, want, withDoors, limited(shortLimits{prefill: upstream.ErrReuseTimeout}), onlyTickets))
	}
	const off = served + " reuse=" + notBidirectional + " next=" + notBidirectional + " pair=" + notBidirectional + " prefill=first,plain"
	silence, endless := next(ofPrefill, silent), next(ofPrefill, drips(same("HTTP/1.1 200 OK\r\nX-A: "), forEver))
	add("B-02", "silent", silence, thenAlone, inModes(thenAlone+pair, "status=504 code=prefill_timeout prefill=first"+pair))
	add("B-02", "headers that never end", endless, thenAlone)
	add("B-02", "accepts and reads nothing", atLeg(ofPrefill, (*door).silence), alone) // and neither is the fresh leg read
	add("B-51", "its machine is gone", machineGone(ofPrefill), unasked+"|"+alone)
	toATicket("B-02", "silent", silence, off)
	toATicket("B-02", "headers that never end", endless, off)
	toATicket("B-51", "its machine is gone", machineGone(ofPrefill), unasked)
	return during("prefill is waited for", faults...)
}

// slowFaults are those of prefill that take seconds: its answer has ten once it has begun.
func slowFaults() []fault {
	const unfinished = thenAlone + " pair=" + notBidirectional
	return during("prefill's answer is read",
		row("B-02", "a body that stops", next(ofPrefill, holds(same(okJSON+"Content-Length: 500\r\n\r\n{"))), unfinished, once),
		row("B-02", "a body that never ends", next(ofPrefill, drips(same(okJSON+"Content-Length: 50000\r\n\r\n{"), forEver)), unfinished, once),
	)
}
