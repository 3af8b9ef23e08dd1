package server_test

import (
	"io"
	"net/http"
	"strings"

	"carryover/server/turn"
	"carryover/upstream"
	"carryover/upstream/dnstest"
)

// Engines that change between the turns, and connections that are kept from one to the next.

// restartFaults are decode instances that are not what they were when they made the ticket.
func restartFaults() []fault {
	const phase = "between the turns"
	const other = "1.6e+09"
	gone := func(decode string) func(v variant) want {
		return func(v variant) want {
			w := served(v)
			w.reuse = reuseOf(v, "miss;reason=instance_gone")
			w.prefill, w.decode = "plain", decode
			return w
		}
	}
	hidden := func(v variant) want {
		const why = "ineligible_unproven;why=incarnation"
		w := want{path: pathBoth, reuse: "miss;reason=" + why, prefill: "plain", decode: "handed", stored: why, kept: v.ticket}
		if v.ticket { // it names the incarnation before
			w.next = "miss;reason=instance_gone"
		}
		return w
	}
	tells := func(incarnation string) func(c *cell) {
		return func(c *cell) { c.tell(c.decode[0], metricsOf(incarnation, rigBlock)) }
	}
	unreachable := func(v variant) want { // the new ticket has all of the old one, whose blocks can't be freed now
		w := gone("handed@1")(v)
		w.unused = v.ticket
		return w
	}
	second := func(c *cell) []upstream.Instance {
		return []upstream.Instance{*c.engine(c.prefill[0]).Instance(), *c.engine(c.decode[1]).Instance()}
	}
	return []fault{
		{row: "B-45", phase: phase, name: "decode is started again", begin: tells(other), want: gone("handed")},
		{row: "B-45", phase: phase, name: "decode is started again and breaks its connections", needs: withDoors, begin: func(c *cell) {
			c.deps.Legs.Close()
			c.decode[0].door.shut()
			c.engine(c.decode[0]).Refresh(c.t.Context()) // as the prober does
			c.decode[0].tells(metricsOf(other, rigBlock))
			c.decode[0].door.open()
			c.engine(c.decode[0]).Refresh(c.t.Context())
		}, want: gone("handed")},
		{row: "B-45", phase: phase, name: "decode is started again and tells no start", begin: tells(""), heal: tells(other), want: hidden},
		{row: "B-45", phase: phase, name: "decode is started again and its metrics fail", begin: func(c *cell) {
			c.tell(c.decode[0], status(500, "x"))
		}, heal: tells(other), want: hidden},
		{row: "B-45", phase: phase, name: "prefill is started again", begin: func(c *cell) {
			c.tell(c.prefill[0], metricsOf(other, rigBlock))
			learnShapes(c.t.Context(), c.deps)
		}, want: served},
		{row: "B-46", phase: phase, name: "decode is removed", needs: twoDecodes, begin: func(c *cell) {
			c.deps.Fleet.Set(second(c))
		}, want: unreachable},
		{row: "B-46", phase: phase, name: "decode is down", needs: twoDecodes, begin: func(c *cell) {
			c.engine(c.decode[0]).Refused()
		}, want: unreachable},
		{row: "B-46", phase: phase, name: "decode is removed and comes back", needs: twoDecodes, begin: func(c *cell) {
			all := append(second(c), *c.engine(c.decode[0]).Instance())
			c.deps.Fleet.Set(second(c))
			c.deps.Fleet.Set(all)
			c.engine(c.decode[0]).Refresh(c.t.Context())
		}, want: func(v variant) want { // the order has changed; the ticket is good, because it is the same incarnation
			w := served(v)
			w.decode = "handed@1"
			return w
		}},
	}
}

// canary is an answer that belongs to no request of a cell.
func canary(l leg) string { return strings.ReplaceAll(wholeAnswer(l), "Hello", "CANRY") + "}" }

// connectionFaults are connections that break when they are used again, or bring what was not asked for.
func connectionFaults() (faults []fault) {
	const idle, step = "a connection is used again", "a connection brings more"
	lost := func(v variant) want {
		if v.ticket {
			return unasked("plain")
		}
		var w want
		switch v.mode {
		case turn.PrefillDecodeOnly:
			return alone("")
		case turn.PrefillError:
			return failed(502, "prefill_failed", "")
		default:
			w = retried(v)
		}
		w.prefill = "plain"
		return w
	}
	lostDecode := func(v variant) want {
		w := restarted(v)
		w.decode = "handed"
		return w
	}
	for _, f := range []struct {
		name    string
		outcome func(*passage)
	}{{"ends", fin}, {"is reset", reset}} {
		faults = append(faults,
			fault{row: "B-53", phase: idle, name: "prefill's " + f.name, modes: true, needs: withDoors, begin: func(c *cell) { c.prefill[0].door.meets(f.outcome) }, want: lost},
			fault{row: "B-53", phase: idle, name: "decode's " + f.name, needs: withDoors, begin: func(c *cell) { c.decode[0].door.meets(f.outcome) }, want: lostDecode},
		)
	}
	// uncalled sends an answer on connections that no leg is using, and waits until the proxy has dropped these.
	uncalled := func(engines func(*cell) []*engine) func(*cell) {
		return func(c *cell) {
			d := engines(c)[0].door
			d.each(func(p *passage) { _, _ = io.WriteString(p.proxy, okJSON+whole(canary(leg{header: http.Header{}}))) })
			c.until(d.empty)
		}
	}
	twice := func(act func(l leg) string) behaviour {
		return holds(func(l leg) string { return act(l) + okJSON + whole(canary(l)) })
	}
	prefilled := func(l leg) string {
		return okJSON + whole(withIDs(l, `{"id":"chatcmpl-`+l.id()+`","kv_transfer_params":`+handover(l)+`}`))
	}
	decoded := func(l leg) string {
		if l.streams() {
			return okEvents + chunked(frames(chatEvents(l)...)) + "0\r\n\r\n"
		}
		return okJSON + whole(wholeAnswer(l)+`,"kv_transfer_params":`+ticket(l)+`}`)
	}
	foreign := func(act behaviour) behaviour {
		return func(w http.ResponseWriter, r *http.Request, l leg) {
			l.header = l.header.Clone()
			l.header.Set("X-Request-Id", "of-another-request")
			act(w, r, l)
		}
	}
	return append(faults,
		fault{row: "B-54", phase: step, name: "an answer of prefill unasked", needs: withDoors, begin: uncalled(ofPrefill), want: served},
		fault{row: "B-54", phase: step, name: "an answer of decode unasked", needs: withDoors, begin: uncalled(ofDecode), want: served},
		fault{row: "B-54", phase: step, name: "a second answer of prefill", begin: always(ofPrefill, twice(prefilled)), ask: (*cell).asksTwice, want: served},
		fault{row: "B-54", phase: step, name: "a second answer of decode", begin: always(ofDecode, twice(decoded)), ask: (*cell).asksTwice, want: served},
		fault{row: "B-54", phase: step, name: "prefill's answer to another request", begin: next(ofPrefill, foreign(prefills)), want: retried},
		fault{row: "B-54", phase: step, name: "decode's answer to another request, once", begin: next(ofDecode, foreign(decodes)), want: restarted},
		fault{row: "B-54", phase: step, name: "decode's answer to another request, always", begin: always(ofDecode, foreign(decodes)), want: func(variant) want {
			return decodeFailedTwice(502, "decode_failed")
		}},
	)
}

// asksTwice sends the turn, and before it one of another client, which leaves its connections behind.
func (c *cell) asksTwice() reply {
	c.t.Helper()
	c.wantOK(c.turn("of another client", 1, c.stream), "miss;reason=first_turn")
	c.others++
	for _, e := range []*engine{c.prefill[0], c.decode[0]} {
		c.before[e]++
	}
	defer c.settled(3)
	return c.again()
}

// nameFaults are instances whose names resolve to something else, or to nothing.
func nameFaults() []fault {
	const phase = "a name is resolved"
	named := func(_ *cell, s *setup) { s.doors, s.named = true, true }
	moved := func(engines func(*cell) []*engine) func(*cell) {
		return func(c *cell) {
			d := engines(c)[0].door
			names.Set(d.name, dnstest.At(d.elsewhere().host()))
			c.deps.Legs.Close()
			d.shut()
		}
	}
	unknown := func(engines func(*cell) []*engine) func(*cell) {
		return atLeg(engines, func(d *door) { names.Forget(d.name) })
	}
	back := func(engines func(*cell) []*engine) func(*cell) {
		return func(c *cell) {
			d := engines(c)[0].door
			names.Set(d.name, dnstest.At(d.host()))
		}
	}
	// A look-up that began before shares its answer with those that come while it lasts (net.Resolver).
	known := func(engines func(*cell) []*engine) func(*cell) {
		return func(c *cell) {
			back(engines)(c)
			instance := c.engine(engines(c)[0]).Instance()
			c.until(func() bool { return c.deps.Legs.Reach(c.t.Context(), instance) == nil })
		}
	}
	const row = "B-52"
	return []fault{
		{row: row, phase: phase, name: "prefill has moved", needs: named, begin: moved(ofPrefill), heal: back(ofPrefill), want: served},
		{row: row, phase: phase, name: "decode has moved", needs: named, begin: moved(ofDecode), heal: back(ofDecode), want: served},
		{row: row, phase: phase, name: "prefill has none for a while", needs: named, begin: unknown(ofPrefill), heal: known(ofPrefill), want: notSent},
		{row: row, phase: phase, name: "decode has none for a while", needs: named, begin: unknown(ofDecode), heal: known(ofDecode), want: func(variant) want {
			return want{status: http.StatusServiceUnavailable, code: "decode_unavailable", retryAfter: "1", prefill: "first"}
		}},
		{row: row, phase: phase, name: "decode moves under a stream", needs: named, begin: pauses, ask: func(c *cell) reply {
			return c.between(func() {
				d := c.decode[0].door
				names.Set(d.name, dnstest.At(d.elsewhere().host()))
				d.leave()
			})
		}, heal: back(ofDecode), except: onlyStreams, want: served},
	}
}
