package server_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"carryover/server"
)

// How engines fail.

// soonOver scales a time limit down: of what fails, in the matrix. What goes well takes a hundredth of it, and on a machine with a load of
// 35 more than a half.
const soonOver = time.Second

// takesOver does something with the connection of a leg in place of an answer, and closes it.
func takesOver(do func(conn net.Conn, l leg)) behaviour {
	return func(w http.ResponseWriter, _ *http.Request, l leg) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		do(conn, l)
	}
}

// resets breaks the connection with a TCP reset.
var resets = takesOver(func(conn net.Conn, _ leg) { _ = conn.(*net.TCPConn).SetLinger(0) })

// drips sends bytes in some twenty pieces, which takes longer than four times soonOver, then does what follows.
func drips(bytes func(l leg) string, then func(conn net.Conn)) behaviour {
	return takesOver(func(conn net.Conn, l leg) {
		tick := time.NewTicker(soonOver / 4)
		defer tick.Stop()
		all := bytes(l)
		for piece := range slices.Chunk([]byte(all), len(all)/20+1) {
			<-tick.C
			if _, err := conn.Write(piece); err != nil {
				return
			}
		}
		then(conn)
	})
}

// same is a text that does not depend on the leg.
func same(text string) func(leg) string { return func(leg) string { return text } }

// forEver goes on with one byte, more slowly than any limit, until the other side has had enough.
func forEver(conn net.Conn) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		if _, err := io.WriteString(conn, " "); err != nil {
			return
		}
	}
}

// stays keeps the connection open until the other side closes it.
func stays(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

// holds writes bytes as they are, and keeps the connection open.
func holds(bytes func(l leg) string) behaviour {
	return takesOver(func(conn net.Conn, l leg) {
		_, _ = io.WriteString(conn, bytes(l))
		stays(conn)
	})
}

const (
	okJSON   = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\n"
	okEvents = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/event-stream\r\n"
)

// whole frames a body with its length.
func whole(body string) string { return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body) }

// chunked frames pieces of a body, without the end.
func chunked(pieces ...string) string {
	var b strings.Builder
	b.WriteString("Transfer-Encoding: chunked\r\n\r\n")
	for _, piece := range pieces {
		fmt.Fprintf(&b, "%x\r\n%s\r\n", len(piece), piece)
	}
	return b.String()
}

// wireOf is raw with bytes that depend on the leg.
func wireOf(bytes func(l leg) string) behaviour {
	return func(w http.ResponseWriter, r *http.Request, l leg) { raw(bytes(l))(w, r, l) }
}

// packs returns a function that compresses.
func packs[W io.WriteCloser](into func(io.Writer) W) func(string) string {
	return func(text string) string {
		var b bytes.Buffer
		w := into(&b)
		_, _ = io.WriteString(w, text)
		_ = w.Close()
		return b.String()
	}
}

// zipped is a body that no engine was asked for.
var zipped = packs(gzip.NewWriter)

// redirects answers with a redirect to where the answer would be a good one.
func redirects(code int) behaviour {
	return func(w http.ResponseWriter, r *http.Request, _ leg) {
		w.Header().Set("Location", "http://"+r.Host+r.URL.Path)
		w.WriteHeader(code)
	}
}

// prefaced sends what may stand before and behind an answer, and the answer.
func prefaced(act behaviour) behaviour {
	return func(w http.ResponseWriter, r *http.Request, l leg) {
		w.WriteHeader(http.StatusContinue)
		w.Header().Set("Link", "</x>")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Trailer", "X-Kv-Reuse")
		act(w, r, l)
		w.Header().Set("X-Kv-Reuse", "of the engine")
	}
}

// answers is a prefill instance whose answer has these members, besides its id.
func answers(members func(l leg) string) behaviour {
	return func(w http.ResponseWriter, _ *http.Request, l leg) {
		answerJSON(w, `{"id":"chatcmpl-`+l.id()+`"`+members(l)+`}`)
	}
}

// stops streams the first n events, and then nothing more.
func stops(n int) behaviour {
	return func(w http.ResponseWriter, r *http.Request, l leg) {
		sayHeaders(w)
		say(w, firstEvents(n)(l)...)
		silent(w, r, l)
	}
}

// always has engines of a role do something with every leg.
func always(engines func(c *cell) []*engine, act behaviour) func(*cell) {
	return func(c *cell) {
		for _, e := range engines(c) {
			e.always(act)
		}
	}
}

// next has the first engine of a role do something with the next leg.
func next(engines func(c *cell) []*engine, act behaviour) func(*cell) {
	return func(c *cell) { engines(c)[0].next(act) }
}

// atLeg does something to the first engine of a role when the turn's leg to prefill is about to be sent, and closes all connections. The turn
// has read which incarnations are alive by then: it would offer no ticket of an engine that does not answer that.
func atLeg(engines func(c *cell) []*engine, do func(d *door)) func(*cell) {
	return func(c *cell) {
		c.atLegs.beforePrefill = func(context.Context) {
			c.atLegs.beforePrefill = nil
			c.deps.Legs.Close()
			do(engines(c)[0].door)
		}
	}
}

// machineGone takes the first engine of a role off the network.
func machineGone(engines func(c *cell) []*engine) func(*cell) {
	return func(c *cell) { engines(c)[0].door.freeze() }
}

func ofPrefill(c *cell) []*engine { return c.prefill }
func ofDecode(c *cell) []*engine  { return c.decode }

// Options.

func heavy(f *fault)       { f.heavy = true }
func watched(f *fault)     { f.watched = true }
func twoPrefills(f *fault) { f.setup.prefills = 2 }
func twoDecodes(f *fault)  { f.setup.decodes = 2 }
func withDoors(f *fault)   { f.setup.doors = true }
func shortDials(f *fault)  { f.setup.dial = soonOver }

func asks(ask func(c *cell) reply) option        { return func(f *fault) { f.ask = ask } }
func healed(heal func(*cell)) option             { return func(f *fault) { f.heal = heal } }
func showing(shows func(leg) string) option      { return func(f *fault) { f.shows = shows } }
func configured(cfg func(*server.Config)) option { return func(f *fault) { f.setup.cfg = cfg } }

// limited scales the time limit of dialling down, and limits of the leg that meets the fault.
func limited(short shortLimits) option {
	return func(f *fault) { f.short, f.setup.dial = &short, soonOver }
}

var shortIdle = limited(shortLimits{idle: soonOver})
