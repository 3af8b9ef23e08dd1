package server_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"carryover/convcache"
	"carryover/server"
)

// Clients that leave, or do not read.

// Turns whose client has left: when prefill had its leg, and when the client had some of the answer.
const (
	left499 = "gone status=499 prefill=first"
	left200 = "gone status=200 prefill=first decode=handed stored="
	stored  = left200 + "yes kept"
)

// leaves is a client that sends the turn and leaves when it is time; then runs when the proxy has noticed.
func leaves(time, then func(*cell)) option {
	return asks(func(c *cell) reply {
		c.t.Helper()
		for len(c.leaver.arrived) > 0 {
			<-c.leaver.arrived // of turns before
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = c.do(c.leaver.ctx, http.MethodPost, chatPath, strings.NewReader(ask(conversation, c.stream, history(c.turns)...)))
		}()
		time(c)
		c.leaver.leave()
		c.leaver.noticed(c.t)
		then(c)
		<-done
		return reply{}
	})
}

// sendingFaults are clients that leave before there is a turn: no engine hears of it, and no ticket is looked for.
func sendingFaults() []fault {
	sends := func(text string) option {
		return asks(func(c *cell) reply {
			conn := c.dial()
			_, _ = io.WriteString(conn, "POST "+chatPath+" HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"+strings.ReplaceAll(text, "%v", fmt.Sprint(c.stream)))
			_ = conn.(*net.TCPConn).CloseWrite()
			if answer, _ := io.ReadAll(conn); strings.Contains(string(answer), " 200 ") {
				c.t.Errorf("half a request was answered %q", answer)
			}
			return reply{}
		})
	}
	const want, half = "gone status=499 ticket:kept", `{"model":"m","conversation_id":"c","stream":%v`
	return during("the request is read",
		row("B-25", "client leaves inside the headers", pass, want+" unheard", onlyStreams, sends("Content-Ty")),
		row("B-25", "client leaves inside the body", pass, want, sends("Content-Length: 1000\r\n\r\n"+half)),
		row("B-25", "client leaves inside a chunk", pass, want, sends("Transfer-Encoding: chunked\r\n\r\n100\r\n"+half)),
	)
}

// pass does nothing.
func pass(*cell) {}

// sent waits until the first engine of a role has the leg of the turn, ended until that leg has ended.
func sent(engines func(*cell) []*engine) func(*cell) {
	return func(c *cell) { e := engines(c)[0]; e.await(c.before[e] + 1) }
}

func ended(engines func(*cell) []*engine) func(*cell) {
	return func(c *cell) { e := engines(c)[0]; e.awaitEnd(c.before[e] + 1) }
}

// leavingFaults are clients that leave, or stop reading, while the legs run or when they have some of the answer.
func leavingFaults() []fault {
	itself := func(c *cell) { <-c.leaver.ctx.Done() }
	// leaving has the client leave at a seam, which waits until the proxy has noticed.
	leaving := func(c *cell) func(context.Context) {
		return func(ctx context.Context) {
			c.leaver.leave()
			<-ctx.Done()
		}
	}
	after := func(c *cell) { c.atLegs.afterPrefill = leaving(c) }
	// gated has decode begin its answer when the gate opens, which the leg has to live to see.
	gated := func(act behaviour) func(c *cell) {
		return func(c *cell) {
			c.decode[0].next(func(w http.ResponseWriter, r *http.Request, l leg) {
				c.waiting <- r.Context() // ends when the connection of the leg is closed
				waits(c.gate, act)(w, r, l)
			})
		}
	}
	lives := leaves(sent(ofDecode), func(c *cell) {
		select {
		case <-(<-c.waiting).Done():
			c.t.Error("decode was cancelled before its first event")
		case <-time.After(50 * time.Millisecond): // long for a cancel, which takes microseconds
		}
		c.release()
		ended(ofDecode)(c)
	})
	// reads is a client that leaves when it has read a text.
	reads := func(text string, then func(*cell)) option {
		return asks(func(c *cell) reply {
			resp := c.opens()
			readUntil(c.t, resp.Body, text)
			c.leaver.leave()
			_ = resp.Body.Close()
			then(c)
			return reply{}
		})
	}
	return slices.Concat(during("prefill is about to be sent",
		row("B-26", "client leaves", func(c *cell) { c.atLegs.beforePrefill = leaving(c) }, "gone status=499 ticket:kept", watched, leaves(itself, pass)),
	), during("prefill is waited for",
		row("B-27", "client leaves", next(ofPrefill, silent), left499, watched, leaves(sent(ofPrefill), ended(ofPrefill))), // it is cancelled
	), during("prefill has answered",
		row("B-28", "client leaves", after, left499+" rescued", watched, leaves(itself, func(c *cell) {
			ended(ofDecode)(c)
			c.until(func() bool { return c.server.Unused() > 0 })
		})),
		row("B-28", "client leaves, and there is no hand-over", func(c *cell) {
			c.prefill[0].next(answers(same("")))
			after(c)
		}, left499, watched, leaves(itself, pass)),
		row("B-28", "client leaves, and decode refuses", func(c *cell) {
			c.atLegs.afterPrefill = func(ctx context.Context) {
				c.deps.Legs.Close()
				c.decode[0].door.shut()
				leaving(c)(ctx)
			}
		}, left499, watched, withDoors, leaves(itself, func(c *cell) {
			c.until(func() bool { return c.log.count("wait for their lease") == 1 })
		})),
	), during("decode is waited for",
		row("B-29", "client leaves", gated(stops(1)), left499+" decode=handed", watched, onlyStreams, lives),  // until the leg is cancelled
		row("B-29", "client leaves before a whole answer", gated(decodes), stored, watched, onlyWhole, lives), // its blocks are pinned, so it is read to its end
	), during("the answer is read",
		row("B-29", "client leaves", next(ofDecode, stops(2)), left200+"incomplete", watched, onlyStreams, reads(`"Hello"`, ended(ofDecode))), // it is cancelled
		row("B-30", "client leaves behind the finish", next(ofDecode, stops(4)), stored, watched, onlyStreams, reads(`"finish_reason":"stop"`, pass)),
		// A whole answer was there, and the ticket put, before the client was to have it.
		row("B-51", "client reads nothing", next(ofDecode, floods), left200+"incomplete whole:stored=yes whole:kept", asks((*cell).readsNothing),
			configured(func(cfg *server.Config) { cfg.ClientWriteTimeout = soonOver })),
	), during("the ticket is put",
		row("B-30", "client leaves", func(c *cell) {
			c.atStore.put = func(ctx context.Context) (convcache.Outcome, bool) {
				c.waiting <- ctx
				<-c.gate
				return 0, false
			}
		}, stored, watched, leaves(func(c *cell) { <-c.waiting }, (*cell).release)),
	))
}

// floods is a decode instance that says more than the buffers between it and a client hold.
func floods(w http.ResponseWriter, r *http.Request, l leg) {
	const piece = 256 << 10
	if !l.streams() {
		answerJSON(w, wholeAnswer(l)+`,"x":"`+strings.Repeat("x", 64*piece)+`","kv_transfer_params":`+ticket(l)+`}`)
		return
	}
	big := chunk(l, `{"content":"`+strings.Repeat("x", piece)+`"}`, "null")
	for r.Context().Err() == nil {
		say(w, big)
	}
}

// readsNothing sends the turn and leaves its answer where it is until the proxy has given up.
func (c *cell) readsNothing() reply {
	c.t.Helper()
	conn := c.dial()
	_ = conn.(*net.TCPConn).SetReadBuffer(4096)
	body := ask(conversation, c.stream, history(c.turns)...)
	_, _ = io.WriteString(conn, wire("POST "+chatPath, body, fmt.Sprintf("Content-Length: %d", len(body))))
	ended(ofDecode)(c) // it is cancelled, or has been read whole
	c.settled(2)
	_ = conn.Close()
	return reply{}
}
