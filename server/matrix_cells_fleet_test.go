package server_test

import (
	"io"
	"net/http"
	"strings"

	"carryover/upstream"
	"carryover/upstream/dnstest"
)

// Engines that change between the turns, and connections that are kept from one to the next.

// restartFaults are decode instances that are not what they were when they made the ticket.
func restartFaults() []fault {
	const other = "1.6e+09"
	const why = "ineligible_unproven;why=incarnation"
	const hidden = served + " reuse=miss;reason=" + why + " ticket:reuse=miss;reason=" + why + " prefill=plain stored=" + why +
		" kept= ticket:kept ticket:next=miss;reason=instance_gone" // the ticket names the incarnation before
	const unreachable = instanceGone + "handed@1 ticket:unused" // the new ticket has all of the old one, whose blocks can't be freed now
	tells := func(incarnation string) func(c *cell) {
		return func(c *cell) { c.tell(c.decode[0], metricsOf(incarnation, rigBlock)) }
	}
	second := func(c *cell) []upstream.Instance {
		return []upstream.Instance{*c.engine(c.prefill[0]).Instance(), *c.engine(c.decode[1]).Instance()}
	}
	return during("between the turns",
		row("B-45", "decode is started again", tells(other), instanceGone+"handed"),
		row("B-45", "decode is started again and breaks its connections", func(c *cell) {
			c.deps.Legs.Close()
			c.decode[0].door.shut()
			c.engine(c.decode[0]).Refresh(c.t.Context()) // as the prober does
			c.decode[0].tells(metricsOf(other, rigBlock))
			c.decode[0].door.open()
			c.engine(c.decode[0]).Refresh(c.t.Context())
		}, instanceGone+"handed", withDoors),
		row("B-45", "decode is started again and tells no start", tells(""), hidden, healed(tells(other))),
		row("B-45", "decode is started again and its metrics fail", func(c *cell) { c.tell(c.decode[0], status(500, "x")) }, hidden, healed(tells(other))),
		row("B-45", "prefill is started again", func(c *cell) {
			c.tell(c.prefill[0], metricsOf(other, rigBlock))
			learnShapes(c.t.Context(), c.deps)
		}, served),
		row("B-46", "decode is removed", func(c *cell) { c.deps.Fleet.Set(second(c)) }, unreachable, twoDecodes),
		row("B-46", "decode is down", func(c *cell) { c.engine(c.decode[0]).Refused() }, unreachable, twoDecodes),
		row("B-46", "decode is removed and comes back", func(c *cell) {
			all := append(second(c), *c.engine(c.decode[0]).Instance())
			c.deps.Fleet.Set(second(c))
			c.deps.Fleet.Set(all)
			c.engine(c.decode[0]).Refresh(c.t.Context())
		}, served+" decode=handed@1", twoDecodes), // the order has changed; the ticket is good, because it is the same incarnation
	)
}

// canary is an answer that belongs to no request of a cell.
func canary(l leg) string { return strings.ReplaceAll(wholeAnswer(l), "Hello", "CANRY") + "}" }

// connectionFaults are connections that break when they are used again, or bring what was not asked for.
func connectionFaults() []fault {
	const unsent = unasked + "|"
	meets := func(engines func(*cell) []*engine, outcome func(*passage)) func(*cell) {
		return func(c *cell) { engines(c)[0].door.each(func(p *passage) { p.outcome = outcome }) }
	}
	var used []fault
	for name, outcome := range map[string]func(*passage){"ends": fin, "is reset": reset} {
		used = append(used,
			row("B-53", "prefill's "+name, meets(ofPrefill, outcome), unsent+retried+" prefill=plain", inModes(unsent+alone, unsent+"status=502 code=prefill_failed"), withDoors),
			row("B-53", "decode's "+name, meets(ofDecode, outcome), restarted+" decode=handed", withDoors))
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
	foreign := func(act behaviour) behaviour {
		return func(w http.ResponseWriter, r *http.Request, l leg) {
			l.header = l.header.Clone()
			l.header.Set("X-Request-Id", "of-another-request")
			act(w, r, l)
		}
	}
	return append(during("a connection is used again", used...), during("a connection brings more",
		row("B-54", "an answer of prefill unasked", uncalled(ofPrefill), served, withDoors),
		row("B-54", "an answer of decode unasked", uncalled(ofDecode), served, withDoors),
		row("B-54", "a second answer of prefill", always(ofPrefill, twice(prefilled)), served, asks((*cell).twice)),
		row("B-54", "a second answer of decode", always(ofDecode, twice(decoded)), served, asks((*cell).twice)),
		row("B-54", "prefill's answer to another request", next(ofPrefill, foreign(prefills)), retried),
		row("B-54", "decode's answer to another request, once", next(ofDecode, foreign(decodes)), restarted),
		row("B-54", "decode's answer to another request, always", always(ofDecode, foreign(decodes)), decodeFailedTwice),
	)...)
}

// twice sends the turn, and before it one of another client, which leaves its connections behind.
func (c *cell) twice() reply {
	c.t.Helper()
	c.wantOK(c.turn("of another client", 1, c.stream), "miss;reason=first_turn")
	c.others++
	for _, e := range c.all() {
		c.before[e]++
	}
	defer c.settled(3)
	return c.again()
}

// nameFaults are instances whose names resolve to something else, or to nothing.
func nameFaults() []fault {
	named := func(f *fault) { f.setup.doors, f.setup.named = true, true }
	leads := func(d, to *door) { names.Set(d.name, dnstest.At(to.host())) }
	moved := func(engines func(*cell) []*engine) func(*cell) {
		return func(c *cell) {
			d := engines(c)[0].door
			leads(d, d.elsewhere())
			c.deps.Legs.Close()
			d.shut()
		}
	}
	unknown := func(engines func(*cell) []*engine) func(*cell) {
		return atLeg(engines, func(d *door) { names.Forget(d.name) })
	}
	// back waits until the name leads there again: a look-up that began before shares its answer with those that come while it lasts (net.Resolver).
	back := func(engines func(*cell) []*engine) option {
		return healed(func(c *cell) {
			e := engines(c)[0]
			leads(e.door, e.door)
			c.until(func() bool { return c.deps.Legs.Reach(c.t.Context(), c.engine(e).Instance()) == nil })
		})
	}
	return during("a name is resolved",
		row("B-52", "prefill has moved", moved(ofPrefill), served, named, back(ofPrefill)),
		row("B-52", "decode has moved", moved(ofDecode), served, named, back(ofDecode)),
		row("B-52", "prefill has none for a while", unknown(ofPrefill), notSent, named, back(ofPrefill)),
		row("B-52", "decode has none for a while", unknown(ofDecode), noDecode, named, back(ofDecode)),
		row("B-52", "decode moves under a stream", pauses, served, named, onlyStreams, back(ofDecode), asks(func(c *cell) reply {
			return c.between(func() {
				d := c.decode[0].door
				leads(d, d.elsewhere())
				d.leave()
			})
		})),
	)
}
