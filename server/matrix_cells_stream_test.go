package server_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
)

// Decode's streams that fail when the client has some of them.

// shown renders the first n events of decodes as a client gets them.
func shown(n int) func(l leg) string {
	return func(l leg) string { return strings.Join(strings.SplitAfter(chatBytes(l), "\n\n")[:n], "") }
}

// firstEvents are the first n events of decodes as it says them; the usage belongs to the fourth.
func firstEvents(n int) func(l leg) []string {
	return func(l leg) []string {
		events := chatEvents(l)
		if n > 3 {
			return events[:len(events)-1]
		}
		return events[:n]
	}
}

// broken is a stream that breaks off when the client has the first n events.
func broken(v variant, n int, code string) want {
	w := served(v)
	w.cut, w.code, w.body, w.stored, w.kept = true, code, shown(n), "incomplete", false
	return w
}

// streamFaults break a stream.
func streamFaults() (faults []fault) {
	const phase = "decode streams"
	row := func(id, name string, act behaviour, need func(*cell, *setup), w func(variant) want) {
		faults = append(faults, fault{row: id, phase: phase, name: name, needs: need, begin: next(ofDecode, act), except: onlyStreams, want: w})
	}
	cutAt := func(n int) func(variant) want { return func(v variant) want { return broken(v, n, "decode_failed") } }
	named := func(code string) func(variant) want {
		return func(v variant) want {
			w := broken(v, 4, code)
			w.unused = true
			return w
		}
	}
	row("B-14", "dies inside its first event", breaks(nothing, `data: {"id":"chatcmpl-`), nil, restarted)
	row("B-14", "dies behind the role", breaks(roleOnly, ""), nil, restarted)
	row("B-14", "dies behind the role, mid-UTF-8", breaks(roleOnly, "data: {\"choices\":[\xf0\x9f"), nil, restarted)
	row("B-47", "KV load fails", kvFails, nil, leftAlone)
	for _, at := range []struct{ name, rest string }{
		{"between events", ""}, {"mid-line", `data: {"id":"chatcm`}, {"mid-UTF-8", "data: \xf0\x9f\x98"}, {"behind a line", "data: {}\n"},
		{"behind CRLF", "data: {}\r\n"},
	} {
		row("B-15", "dies "+at.name, breaks(firstEvents(2), at.rest), nil, cutAt(2))
	}
	row("B-17", "bad chunk", wireOf(func(l leg) string { return okEvents + chunked(frames(firstEvents(2)(l)...)) + "zz\r\n" }), nil, cutAt(2))
	row("B-17", "short of its length", wireOf(func(l leg) string { return okEvents + "Content-Length: 99999\r\n\r\n" + frames(firstEvents(2)(l)...) }), nil, cutAt(2))
	row("B-18", "silent", func(w http.ResponseWriter, r *http.Request, l leg) {
		say(w, firstEvents(2)(l)...)
		silent(w, r, l)
	}, limited(shortIdle()), func(v variant) want { return broken(v, 2, "stream_idle_timeout") })
	row("B-24", "dies behind its params", breaks(firstEvents(4), ""), nil, named("decode_failed"))
	row("B-24", "silent behind its params", func(w http.ResponseWriter, r *http.Request, l leg) {
		say(w, firstEvents(4)(l)...)
		silent(w, r, l)
	}, limited(shortIdle()), named("stream_idle_timeout"))
	row("B-21", "dies inside an event of 2 MiB", breaks(firstEvents(2), "data: "+strings.Repeat("x", 2<<20)), nil, func(v variant) want {
		w := broken(v, 2, "")
		w.body = func(l leg) string { return shown(2)(l) + "data: " + strings.Repeat("x", 2<<20) }
		return w
	})
	return append(faults,
		fault{
			row: "B-19", phase: phase, name: "comments without end", heavy: true, begin: next(ofDecode, babbles), ask: (*cell).readsTheEnd, except: once,
			want: func(v variant) want {
				w := broken(v, 0, "stream_limit")
				w.body = nil // of which only the end is looked at
				return w
			},
		},
		fault{
			row: "B-15", phase: phase, name: "reset", needs: withDoors, begin: pauses,
			ask:    func(c *cell) reply { return c.between(func() { c.decode[0].door.each(reset) }) },
			except: onlyStreams, want: cutAt(2),
		},
		fault{
			row: "B-51", phase: phase, name: "its machine is gone", needs: both(withDoors, limited(shortIdle())), begin: pauses,
			ask:    func(c *cell) reply { return c.between(c.decode[0].door.freeze) },
			except: onlyStreams, want: func(v variant) want { return broken(v, 2, "stream_idle_timeout") },
		},
	)
}

// babbles keeps a stream alive for ever.
func babbles(w http.ResponseWriter, r *http.Request, l leg) {
	say(w, firstEvents(2)(l)...)
	comment := ":" + strings.Repeat(" ", 64<<10) + "\n\n"
	for r.Context().Err() == nil {
		_, _ = io.WriteString(w, comment)
	}
}

// readsTheEnd sends the turn and keeps the last of its answer.
func (c *cell) readsTheEnd() reply {
	c.t.Helper()
	resp, err := c.open(c.leaver.ctx, http.MethodPost, chatPath, strings.NewReader(ask(conversation, true, history(c.turns)...)))
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	const most = 1 << 10
	var end []byte
	buf := make([]byte, 64<<10)
	for err == nil {
		var n int
		n, err = resp.Body.Read(buf)
		end = append(end, buf[:n]...)
		end = end[max(0, len(end)-most):]
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return reply{resp.StatusCode, resp.Header, string(end), err}
}

// pauses has decode wait at the gate between its second event and the rest.
func pauses(c *cell) {
	c.decode[0].next(func(w http.ResponseWriter, r *http.Request, l leg) {
		say(w, firstEvents(2)(l)...)
		waits(c.gate, func(w http.ResponseWriter, _ *http.Request, l leg) { say(w, chatEvents(l)[2:]...) })(w, r, l)
	})
}

// between sends the turn, and does something when the client has the events before the pause.
func (c *cell) between(do func()) reply {
	c.t.Helper()
	resp, err := c.open(c.leaver.ctx, http.MethodPost, chatPath, strings.NewReader(ask(conversation, true, history(c.turns)...)))
	if err != nil {
		c.t.Fatal(err)
	}
	var head strings.Builder
	readUntil(c.t, io.TeeReader(oneByte{resp.Body}, &head), `"Hello"`)
	do()
	c.release()
	p := c.rest(resp)
	p.body = head.String() + p.body
	return p
}

// oneByte reads no further than it must.
type oneByte struct{ io.Reader }

func (r oneByte) Read(p []byte) (int, error) { return r.Reader.Read(p[:min(1, len(p))]) }

// streamEnds are streams that end in order, and are odd.
func streamEnds() (faults []fault) {
	const phase = "decode streams to its end"
	row := func(id, name string, say func(l leg) []string, shows func(l leg) string, stored string) {
		faults = append(faults, fault{
			row: id, phase: phase, name: name, except: onlyStreams,
			begin: next(ofDecode, func(w http.ResponseWriter, _ *http.Request, l leg) {
				sayHeaders(w)
				for _, piece := range say(l) {
					_, _ = io.WriteString(w, piece)
					_ = http.NewResponseController(w).Flush()
				}
			}),
			want: func(v variant) want {
				w := served(v)
				w.body, w.stored, w.kept = shows, stored, stored == "yes"
				w.unused = !w.kept && stored != "ineligible_bad_params" && strings.Contains(strings.Join(say(leg{header: http.Header{}}), ""), `"remote_blocks_expiry_time"`)
				return w
			},
		})
	}
	upTo := func(n int) func(l leg) []string {
		return func(l leg) []string { return []string{frames(firstEvents(n)(l)...)} }
	}
	early := func(n int) func(variant) want { // before the finish
		return func(v variant) want { return broken(v, n, "decode_failed") }
	}
	for n, name := range []string{"no event", "the role only", "half of its text", "all of its text", "all but [DONE]"} {
		row("B-16", "with "+name, upTo(n), shown(n), "incomplete")
		end := &faults[len(faults)-1]
		switch {
		case n < 2: // nothing has reached the client
			end.want = restarted
		case n < 4:
			end.want = early(n)
		}
	}
	row("B-16", "mid-event", func(l leg) []string { return append(upTo(2)(l), "data: {") }, nil, "")
	faults[len(faults)-1].want = early(2)
	const comments = ": comment\n\nretry: 3\n\nevent: x\nid: 7\n\nfoo: bar\n\n"
	row("B-20", "with comments and unknown fields", func(l leg) []string { return []string{comments, frames(chatEvents(l)...)} },
		func(l leg) string { return comments + chatBytes(l) }, "yes")
	const garbage = "data: not json\n\n"
	row("B-20", "with an event of garbage", func(l leg) []string {
		return []string{frames(firstEvents(1)(l)...), garbage, frames(chatEvents(l)[1:]...)}
	},
		func(l leg) string { return shown(1)(l) + garbage + strings.TrimPrefix(chatBytes(l), shown(1)(l)) }, "yes") // the ids of all of it are there
	row("B-20", "byte by byte", func(l leg) []string { return strings.Split(frames(chatEvents(l)...), "") }, chatBytes, "yes")
	big := func(l leg) string { return frames(chunk(l, `{"content":"`+strings.Repeat("x", 2<<20)+`"}`, "null")) }
	row("B-21", "with an event of 2 MiB", func(l leg) []string {
		return []string{frames(firstEvents(2)(l)...), big(l), frames(chatEvents(l)[2:]...)}
	},
		func(l leg) string { return shown(2)(l) + big(l) + strings.TrimPrefix(chatBytes(l), shown(2)(l)) }, "") // what it says is not known
	silentEnd := func(l leg) []string {
		events := chatEvents(l)
		events[3] = chunk(l, `{}`, `"stop"`)
		return []string{frames(events...)}
	}
	row("B-22", "without params", silentEnd, chatBytes, "engine_sends_no_params")
	with := func(event, params string) string {
		return strings.TrimSuffix(event, "}") + `,"kv_transfer_params":` + params + "}"
	}
	row("B-23", "with params in several events", func(l leg) []string {
		e := chatEvents(l)
		early := strings.ReplaceAll(ticket(l), "chatcmpl-", "early-")
		e[1] = with(e[1], early)
		return []string{frames(append(e[:len(e)-1], with(`{"id":"chatcmpl-`+l.id()+`","choices":[]}`, "null"), "[DONE]")...)}
	}, chatBytes, "yes")
	// Nothing is kept then, and what the params before named is not known to be alone any more.
	row("B-23", "with unusable params last", func(l leg) []string {
		e := chatEvents(l)
		return []string{frames(append(e[:len(e)-1], with(`{"id":"chatcmpl-`+l.id()+`","choices":[]}`, `{"remote_host":1}`), "[DONE]")...)}
	}, chatBytes, "ineligible_bad_params")
	later := func(l leg) string {
		return frames(append(firstEvents(2)(l), `{"error":{"message":"later"}}`, "[DONE]")...)
	}
	row("B-47", "with an error in between", func(l leg) []string { return []string{later(l)} }, later, "incomplete")
	return faults
}
