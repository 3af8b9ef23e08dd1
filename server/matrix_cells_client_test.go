package server_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"carryover/convcache"
)

// Clients that leave, or do not read.

// watched is a rig that tells when the proxy has noticed that the client has left.
func watched(c *cell, s *setup) { s.front = contexts(c.leaver.arrived) }

// leaves is a client that sends the turn and leaves when it is time; then returns when the proxy has noticed.
func (c *cell) leaves(time func(), then func()) reply {
	c.t.Helper()
	for len(c.leaver.arrived) > 0 {
		<-c.leaver.arrived // of turns before
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.do(c.leaver.ctx, http.MethodPost, chatPath, strings.NewReader(ask(conversation, c.stream, history(c.turns)...)))
	}()
	time()
	c.leaver.leave()
	c.leaver.noticed(c.t)
	then()
	<-done
	return reply{}
}

// goneFaults are clients that leave in each phase of a turn.
func goneFaults() []fault {
	return append(sendingFaults(), append(leavingFaults(), readingFaults()...)...)
}

// sendingFaults are clients that leave before there is a turn: no engine hears of it, and no ticket is looked for.
func sendingFaults() (faults []fault) {
	const phase = "the request is read"
	for _, f := range []struct {
		name, framing, body string
		unheard             bool
	}{
		{"client leaves inside the headers", "Content-Ty", "", true},
		{"client leaves inside the body", "Content-Length: 1000\r\n\r\n", `{"model":"m","conversation_id":"c","stream":%v`, false},
		{"client leaves inside a chunk", "Transfer-Encoding: chunked\r\n\r\n100\r\n", `{"model":"m","conversation_id":"c","stream":%v`, false},
	} {
		except := func(v variant) string {
			if f.unheard {
				return onlyStreams(v)
			}
			return ""
		}
		faults = append(faults, fault{row: "B-25", phase: phase, name: f.name, begin: func(*cell) {}, except: except, ask: func(c *cell) reply {
			conn := c.dial()
			_, _ = io.WriteString(conn, "POST "+chatPath+" HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"+f.framing)
			if f.body != "" {
				_, _ = fmt.Fprintf(conn, f.body, c.stream)
			}
			_ = conn.(*net.TCPConn).CloseWrite()
			if answer, _ := io.ReadAll(conn); strings.Contains(string(answer), " 200 ") {
				c.t.Errorf("half a request was answered %q", answer)
			}
			return reply{}
		}, want: func(v variant) want {
			return want{gone: true, unheard: f.unheard, status: 499, kept: v.ticket}
		}})
	}
	return faults
}

// leavingFaults are clients that leave while the legs run.
func leavingFaults() []fault {
	asks := func(time func(c *cell), then func(c *cell)) func(c *cell) reply {
		return func(c *cell) reply { return c.leaves(func() { time(c) }, func() { then(c) }) }
	}
	nothing := func(*cell) {}
	seam := func(c *cell) { <-c.leaver.ctx.Done() } // it leaves by itself
	left := func(prefill, decode string) func(variant) want {
		return func(variant) want { return want{gone: true, status: 499, prefill: prefill, decode: decode} }
	}
	// at has the client leave at a seam, which waits until the proxy has noticed.
	at := func(seam func(c *cell, at func(context.Context))) func(c *cell) {
		return func(c *cell) {
			seam(c, func(ctx context.Context) {
				c.leaver.leave()
				<-ctx.Done()
			})
		}
	}
	before := at(func(c *cell, at func(context.Context)) { c.atLegs.beforePrefill = at })
	after := at(func(c *cell, at func(context.Context)) { c.atLegs.afterPrefill = at })
	// decoding has decode begin its answer when the gate opens, which the leg has to live to see.
	decoding := func(act behaviour) func(c *cell) {
		return func(c *cell) {
			c.decode[0].next(func(w http.ResponseWriter, r *http.Request, l leg) {
				c.leg <- r.Context() // ends when the connection of the leg is closed
				waits(c.gate, act)(w, r, l)
			})
		}
	}
	decodes1 := func(c *cell) { c.decode[0].await(c.before[c.decode[0]] + 1) }
	ended := func(c *cell) { c.decode[0].awaitEnd(c.before[c.decode[0]] + 1) }
	lives := func(c *cell) {
		select {
		case <-(<-c.leg).Done():
			c.t.Error("decode was cancelled before its first event")
		case <-time.After(50 * time.Millisecond): // long for a cancel, which takes microseconds
		}
		c.release()
		ended(c)
	}
	return []fault{
		{row: "B-26", phase: "prefill is about to be sent", name: "client leaves", needs: watched, begin: before, ask: asks(seam, nothing), want: func(v variant) want {
			w := left("", "")(v)
			w.kept = v.ticket
			return w
		}},
		{row: "B-27", phase: "prefill is waited for", name: "client leaves", needs: watched, begin: next(ofPrefill, silent),
			ask: asks(func(c *cell) { c.prefill[0].await(c.before[c.prefill[0]] + 1) }, func(c *cell) {
				c.prefill[0].awaitEnd(c.before[c.prefill[0]] + 1) // it is cancelled
			}), want: left("first", "")},
		{row: "B-28", phase: "prefill has answered", name: "client leaves", needs: watched, begin: after, ask: asks(seam, func(c *cell) {
			ended(c)
			c.until(func() bool { return c.server.Unused() > 0 })
		}), want: func(v variant) want {
			w := left("first", "")(v)
			w.rescued = true
			return w
		}},
		{row: "B-28", phase: "prefill has answered", name: "client leaves, and there is no hand-over", needs: watched, begin: func(c *cell) {
			c.prefill[0].next(answers(func(leg) string { return "" }))
			after(c)
		}, ask: asks(seam, nothing), want: left("first", "")},
		{row: "B-28", phase: "prefill has answered", name: "client leaves, and decode refuses", needs: both(watched, withDoors), begin: func(c *cell) {
			c.atLegs.afterPrefill = func(ctx context.Context) {
				c.deps.Legs.Close()
				c.decode[0].door.shut()
				c.leaver.leave()
				<-ctx.Done()
			}
		}, ask: asks(seam, func(c *cell) {
			c.until(func() bool { return c.log.count("wait for their lease") == 1 })
		}), want: left("first", "")},
		{row: "B-29", phase: "decode is waited for", name: "client leaves", needs: watched, begin: decoding(func(w http.ResponseWriter, r *http.Request, l leg) {
			say(w, chatEvents(l)[0])
			silent(w, r, l) // until the leg is cancelled
		}), ask: asks(decodes1, lives), want: left("first", "handed"), except: onlyStreams},
		{row: "B-29", phase: "decode is waited for", name: "client leaves before a whole answer", needs: watched, begin: decoding(decodes), ask: asks(decodes1, lives), want: func(variant) want { // its blocks are pinned, so it is read to its end
			return want{gone: true, status: 200, prefill: "first", decode: "handed", stored: "yes", kept: true}
		}, except: onlyWhole},
	}
}

// readingFaults are clients that leave, or stop reading, when they have some of the answer.
func readingFaults() []fault {
	const phase = "the answer is read"
	ended := func(c *cell) { c.decode[0].awaitEnd(c.before[c.decode[0]] + 1) }
	putting := func(c *cell) (at chan struct{}) {
		at = make(chan struct{})
		c.atStore.put = func(context.Context) (convcache.Outcome, bool) {
			close(at)
			<-c.gate
			return 0, false
		}
		return at
	}
	return []fault{
		{row: "B-29", phase: phase, name: "client leaves", needs: watched, begin: func(c *cell) {
			c.decode[0].next(func(w http.ResponseWriter, r *http.Request, l leg) {
				say(w, firstEvents(2)(l)...)
				silent(w, r, l)
			})
		}, ask: func(c *cell) reply {
			resp, err := c.open(c.leaver.ctx, http.MethodPost, chatPath, strings.NewReader(ask(conversation, true, history(c.turns)...)))
			if err != nil {
				c.t.Fatal(err)
			}
			readUntil(c.t, resp.Body, `"Hello"`)
			c.leaver.leave()
			_ = resp.Body.Close()
			ended(c) // it is cancelled
			return reply{}
		}, want: func(v variant) want {
			return want{gone: true, status: 200, prefill: "first", decode: "handed", stored: "incomplete"}
		}, except: onlyStreams},
		{row: "B-30", phase: "the ticket is put", name: "client leaves", needs: watched, begin: func(*cell) {}, ask: func(c *cell) reply {
			at := putting(c)
			return c.leaves(func() { <-at }, c.release)
		}, want: func(variant) want {
			return want{gone: true, status: 200, prefill: "first", decode: "handed", stored: "yes", kept: true}
		}},
		{row: "B-30", phase: phase, name: "client leaves behind the finish", needs: watched, begin: func(c *cell) {
			c.decode[0].next(func(w http.ResponseWriter, r *http.Request, l leg) {
				say(w, firstEvents(4)(l)...)
				silent(w, r, l)
			})
		}, ask: func(c *cell) reply {
			resp, err := c.open(c.leaver.ctx, http.MethodPost, chatPath, strings.NewReader(ask(conversation, true, history(c.turns)...)))
			if err != nil {
				c.t.Fatal(err)
			}
			readUntil(c.t, resp.Body, `"finish_reason":"stop"`)
			c.leaver.leave()
			_ = resp.Body.Close()
			return reply{}
		}, want: func(v variant) want {
			return want{gone: true, status: 200, prefill: "first", decode: "handed", stored: "yes", kept: true}
		}, except: onlyStreams},
		{row: "B-51", phase: phase, name: "client reads nothing", needs: shortWrite, begin: func(c *cell) {
			c.decode[0].next(floods)
		}, ask: (*cell).readsNothing, want: func(v variant) want {
			w := want{gone: true, status: 200, prefill: "first", decode: "handed", stored: "incomplete"}
			if !v.stream { // it was whole, and the ticket put, before the client was to have it
				w.stored, w.kept = "yes", true
			}
			return w
		}},
	}
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
	_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", chatPath, len(body), body)
	c.decode[0].awaitEnd(c.before[c.decode[0]] + 1) // it is cancelled, or has been read whole
	c.settled(2)
	_ = conn.Close()
	return reply{}
}
