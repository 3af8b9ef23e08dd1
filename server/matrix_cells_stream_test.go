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

// broken is a stream that breaks off when the client has some of it.
const broken = served + " cut stored=incomplete kept="

// streamFaults break a stream.
func streamFaults() (faults []fault) {
	const failed, idle = broken + " code=decode_failed", broken + " code=stream_idle_timeout"
	add := func(id, name string, begin func(*cell), want string, options ...option) {
		faults = append(faults, row(id, name, begin, want, append([]option{onlyStreams}, options...)...))
	}
	dies := func(id, name string, events func(leg) []string, rest, want string, options ...option) {
		add(id, "dies "+name, next(ofDecode, breaks(events, rest)), want, options...)
	}
	dies("B-14", "inside its first event", nothing, `data: {"id":"chatcmpl-`, restarted)
	dies("B-14", "behind the role", roleOnly, "", restarted)
	dies("B-14", "behind the role, mid-UTF-8", roleOnly, "data: {\"choices\":[\xf0\x9f", restarted)
	for at, rest := range map[string]string{
		"between events": "", "mid-line": `data: {"id":"chatcm`, "mid-UTF-8": "data: \xf0\x9f\x98", "behind a line": "data: {}\n", "behind CRLF": "data: {}\r\n",
	} {
		dies("B-15", at, firstEvents(2), rest, failed, showing(shown(2)))
	}
	dies("B-24", "behind its params", firstEvents(4), "", failed+" unused", showing(shown(4)))
	large := "data: " + strings.Repeat("x", 2<<20)
	dies("B-21", "inside an event of 2 MiB", firstEvents(2), large, broken, showing(func(l leg) string { return shown(2)(l) + large }))
	add("B-47", "KV load fails", next(ofDecode, kvFails), leftAlone)
	two := func(l leg) string { return frames(firstEvents(2)(l)...) }
	add("B-17", "bad chunk", next(ofDecode, wireOf(func(l leg) string { return okEvents + chunked(two(l)) + "zz\r\n" })), failed, showing(shown(2)))
	add("B-17", "short of its length", next(ofDecode, wireOf(func(l leg) string { return okEvents + "Content-Length: 99999\r\n\r\n" + two(l) })), failed, showing(shown(2)))
	add("B-18", "silent", next(ofDecode, stops(2)), idle, showing(shown(2)), shortIdle)
	add("B-24", "silent behind its params", next(ofDecode, stops(4)), idle+" unused", showing(shown(4)), shortIdle)
	add("B-19", "comments without end", next(ofDecode, babbles), broken+" code=stream_limit", heavy, asks((*cell).readsTheEnd), once)
	add("B-15", "reset", pauses, failed, showing(shown(2)), withDoors, asks(func(c *cell) reply {
		return c.between(func() { c.decode[0].door.each(reset) })
	}))
	add("B-51", "its machine is gone", pauses, idle, showing(shown(2)), withDoors, shortIdle, asks(func(c *cell) reply { return c.between(c.decode[0].door.freeze) }))
	return during("decode streams", faults...)
}

// babbles keeps a stream alive for ever.
func babbles(w http.ResponseWriter, r *http.Request, l leg) {
	say(w, firstEvents(2)(l)...)
	comment := ":" + strings.Repeat(" ", 64<<10) + "\n\n"
	for r.Context().Err() == nil {
		_, _ = io.WriteString(w, comment)
	}
}

// opens sends the turn as a stream, and returns when its headers are there.
func (c *cell) opens() *http.Response {
	c.t.Helper()
	resp, err := c.open(c.leaver.ctx, http.MethodPost, chatPath, strings.NewReader(ask(conversation, true, history(c.turns)...)))
	if err != nil {
		c.t.Fatal(err)
	}
	return resp
}

// readsTheEnd sends the turn and keeps the last of its answer.
func (c *cell) readsTheEnd() reply {
	c.t.Helper()
	resp := c.opens()
	defer resp.Body.Close()
	const most = 1 << 10
	var end []byte
	var err error
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
	resp := c.opens()
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
	const unknown = served + " kept= stored=" // why no ticket is kept
	add := func(id, name string, parts func(l leg) []string, shows func(l leg) string, want string) {
		faults = append(faults, row(id, name, next(ofDecode, says(false, parts)), want, onlyStreams, showing(shows)))
	}
	upTo := func(n int) func(l leg) []string {
		return func(l leg) []string { return []string{frames(firstEvents(n)(l)...)} }
	}
	const early = broken + " code=decode_failed"          // before the finish
	add("B-16", "with no event", upTo(0), nil, restarted) // nothing has reached the client
	add("B-16", "with the role only", upTo(1), nil, restarted)
	add("B-16", "with half of its text", upTo(2), shown(2), early)
	add("B-16", "with all of its text", upTo(3), shown(3), early)
	add("B-16", "with all but [DONE]", upTo(4), shown(4), unknown+"incomplete unused")
	add("B-16", "mid-event", func(l leg) []string { return append(upTo(2)(l), "data: {") }, shown(2), early)
	// put has something between the first n events and the rest.
	put := func(id, name string, n int, between func(leg) string, want string) {
		add(id, name, func(l leg) []string {
			return []string{frames(firstEvents(n)(l)...), between(l), frames(chatEvents(l)[n:]...)}
		},
			func(l leg) string { return shown(n)(l) + between(l) + strings.TrimPrefix(chatBytes(l), shown(n)(l)) }, want)
	}
	put("B-20", "with comments and unknown fields", 0, same(": comment\n\nretry: 3\n\nevent: x\nid: 7\n\nfoo: bar\n\n"), served)
	put("B-20", "with an event of garbage", 1, same("data: not json\n\n"), served) // the ids of all of it are there
	put("B-21", "with an event of 2 MiB", 2, func(l leg) string { return frames(chunk(l, `{"content":"`+strings.Repeat("x", 2<<20)+`"}`, "null")) }, unknown+" unused")
	add("B-20", "byte by byte", func(l leg) []string { return strings.Split(frames(chatEvents(l)...), "") }, chatBytes, served)
	add("B-22", "without params", func(l leg) []string {
		events := chatEvents(l)
		events[3] = chunk(l, `{}`, `"stop"`)
		return []string{frames(events...)}
	}, chatBytes, unknown+"engine_sends_no_params")
	// ends has the last event tell params, behind those of e.
	ends := func(l leg, e []string, params string) []string {
		return []string{frames(append(e[:len(e)-1], `{"id":"chatcmpl-`+l.id()+`","choices":[],"kv_transfer_params":`+params+`}`, "[DONE]")...)}
	}
	add("B-23", "with params in several events", func(l leg) []string {
		e := chatEvents(l)
		e[1] = strings.TrimSuffix(e[1], "}") + `,"kv_transfer_params":` + strings.ReplaceAll(ticket(l), "chatcmpl-", "early-") + "}"
		return ends(l, e, "null")
	}, chatBytes, served)
	// What the params before named is not known to be alone any more.
	add("B-23", "with unusable params last", func(l leg) []string { return ends(l, chatEvents(l), `{"remote_host":1}`) }, chatBytes, unknown+"ineligible_bad_params")
	later := func(l leg) string {
		return frames(append(firstEvents(2)(l), `{"error":{"message":"later"}}`, "[DONE]")...)
	}
	add("B-47", "with an error in between", func(l leg) []string { return []string{later(l)} }, later, unknown+"incomplete")
	return during("decode streams to its end", faults...)
}
