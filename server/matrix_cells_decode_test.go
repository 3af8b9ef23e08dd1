package server_test

import (
	"io"
	"net/http"
	"strings"
	"time"

	"carryover/server"
)

// Decode legs that fail before the client has anything of their answer.

// restarted is a turn that fresh legs of both kinds have saved, the first hand-over being spent.
func restarted(v variant) want {
	w := retried(v)
	w.decode, w.rescued = "handed handed", true
	return w
}

// leftAlone is a turn that decode has saved by itself, after it could not load the KV of the only prefill instance.
func leftAlone(variant) want {
	w := alone("first")
	w.decode, w.rescued = "handed alone", true
	return w
}

// rescued is what a fault leaves whose hand-over is rescued, too.
func rescued(of func(variant) want) func(variant) want {
	return func(v variant) want {
		w := of(v)
		w.rescued = true
		return w
	}
}

// decodeFailed is an error that the client gets after decode had the hand-over; ticket and hand-over are spent.
func decodeFailed(status int, code string) want {
	return want{status: status, code: code, prefill: "first", decode: "handed", rescued: true}
}

// decodeFailedTwice is one after a restart.
func decodeFailedTwice(status int, code string) want {
	return want{status: status, code: code, prefill: "first plain", decode: "handed handed", rescued: true}
}

// decodeDialFaults are those of connections to decode instances.
func decodeDialFaults() []fault {
	const phase = "decode is dialled"
	first := func(do func(d *door)) func(*cell) { return atLeg(ofDecode, do) }
	before := func(c *cell) {
		c.deps.Legs.Close()
		c.decode[0].door.shut()
	}
	unread := func(w want) func(variant) want { // the turn has seen that no start of decode is alive, and has left the ticket where it is
		return func(v variant) want {
			w := w
			if w.reuse = reuseOf(v, "miss;reason=instance_gone"); w.status != 0 {
				w.reuse = ""
			}
			w.prefill, w.kept = "plain", w.kept || v.ticket
			return w
		}
	}
	none := func(variant) want {
		return want{status: http.StatusServiceUnavailable, code: "decode_unavailable", retryAfter: "1", prefill: "first"}
	}
	other := func(v variant) want {
		w := served(v)
		w.decode = "handed@1"
		return w
	}
	short := shortDials
	stale := func(_ *cell, s *setup) { s.cfg = func(cfg *server.Config) { cfg.HandoverBudget = time.Nanosecond } }
	return []fault{
		{row: "B-12", phase: phase, name: "all refuse", needs: withDoors, begin: first((*door).shut), want: none},
		{row: "B-12", phase: phase, name: "all refuse already when decode's start is read", needs: withDoors, begin: before, want: unread(none(variant{}))},
		{row: "B-12", phase: phase, name: "one of two refuses already when its start is read", needs: both(withDoors, twoDecodes), begin: before, want: unread(other(variant{}))},
		{row: "B-12", phase: phase, name: "black hole", needs: both(withDoors, short), begin: first((*door).hole), want: none},
		{row: "B-12", phase: phase, name: "one of two refuses", needs: both(withDoors, twoDecodes), begin: first((*door).shut), want: other},
		{row: "B-12", phase: phase, name: "one of two is a black hole", needs: both(withDoors, twoDecodes, short), begin: first((*door).hole), want: other},
		{row: "B-12", phase: phase, name: "one of two refuses when the hand-over is too old", needs: both(withDoors, twoDecodes, stale), begin: first((*door).shut), want: none},
	}
}

// decodeFailures are answers without a body for the client.
func decodeFailures() (faults []fault) {
	const phase = "decode answers"
	row := func(id, name string, act behaviour, w want) {
		faults = append(faults, fault{row: id, phase: phase, name: name, begin: next(ofDecode, act), want: func(variant) want { return w }})
	}
	for _, code := range []int{400, 404, 413, 422} {
		row("B-13", http.StatusText(code), status(code, "bad"), decodeFailed(code, "invalid_request"))
	}
	row("B-13", "401", status(401, "key sk-123"), decodeFailed(502, "upstream_auth"))
	row("B-13", "403", status(403, "key sk-123"), decodeFailed(502, "upstream_auth"))
	busy := decodeFailed(429, "rate_limited")
	busy.retryAfter = "9"
	row("B-13", "429", status(429, "busy", "Retry-After", "9"), busy)
	row("B-13", "another content type", replyBody("text/html", "x"), decodeFailed(502, "bad_decode_answer"))
	row("B-13", "gzip", replyBody("application/json", zipped("{}"), "Content-Encoding", "gzip"), decodeFailed(502, "bad_decode_answer"))
	for _, code := range []int{301, 302, 307, 308} {
		row("B-11", "redirect "+http.StatusText(code), redirects(code), decodeFailed(502, "decode_failed"))
	}
	faults = append(faults, fault{row: "B-11", phase: phase, name: "100, 103 and a trailer around 200", begin: next(ofDecode, prefaced(decodes)), want: served})
	for _, f := range []struct {
		row, name  string
		act        behaviour
		status     int
		retryAfter string
	}{
		{"B-13", "502", status(502, "x"), 502, ""},
		{"B-13", "503", status(503, "x", "Retry-After", "7"), 503, "7"},
		{"B-13", "504", status(504, "x"), 502, ""},
		{"B-13", "reset", resets, 502, ""},
		{"B-13", "end of the connection", hangUp, 502, ""},
		{"B-17", "no HTTP", raw("hello\r\n\r\n"), 502, ""},
		{"B-17", "bad length", raw("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"), 502, ""},
		{"B-17", "80 KiB of headers", raw("HTTP/1.1 200 OK\r\nX-Y: " + strings.Repeat("y", 80<<10) + "\r\n\r\n"), 502, ""},
		{"B-17", "bad chunk before anything else", raw(okEvents + "Transfer-Encoding: chunked\r\n\r\nzz\r\n"), 502, ""},
		{"B-14", "end of the connection behind the headers", breaks(nothing, ""), 502, ""},
	} {
		faults = append(faults,
			fault{row: f.row, phase: phase, name: f.name + ", once", begin: next(ofDecode, f.act), want: restarted},
			fault{row: f.row, phase: phase, name: f.name + ", always", begin: always(ofDecode, f.act), want: func(variant) want {
				w := decodeFailedTwice(f.status, "decode_failed")
				w.retryAfter = f.retryAfter
				return w
			}})
	}
	loadFails := status(500, "KV load failed")
	of := func(name string, needs func(*cell, *setup), begin func(*cell), want func(variant) want) {
		faults = append(faults, fault{row: "B-47", phase: phase, name: name, needs: needs, begin: begin, want: want})
	}
	at := func(decode string, of func(variant) want) func(variant) want {
		return func(v variant) want {
			w := of(v)
			w.decode = decode
			return w
		}
	}
	of("500, once", nil, next(ofDecode, loadFails), leftAlone)
	of("500, always", nil, always(ofDecode, loadFails), func(variant) want {
		w := decodeFailedTwice(502, "decode_failed")
		w.prefill, w.decode = "first", "handed alone"
		return w
	})
	of("500, by the first of two", twoDecodes, next(ofDecode, loadFails), at("handed alone@1", leftAlone))
	of("500, of the first of two", twoPrefills, next(ofDecode, loadFails), func(v variant) want {
		w := restarted(v)
		w.prefill = strings.Replace(w.prefill, " plain", " plain@1", 1)
		return w
	})
	return faults
}

// decodeTimeouts are legs that decode does not begin to answer.
func decodeTimeouts() (faults []fault) {
	const phase = "decode is waited for"
	row := func(id, name string, unseen bool, begin func(*cell)) {
		faults = append(faults, fault{row: id, phase: phase, name: name, needs: both(withDoors, limited(shortFirst())), begin: begin, want: func(variant) want {
			w := decodeFailed(http.StatusGatewayTimeout, "decode_timeout")
			if unseen {
				w.decode, w.rescued = "", false
			}
			return w
		}})
	}
	row("B-18", "silent", false, next(ofDecode, silent))
	row("B-18", "headers that never end", false, next(ofDecode, drips("HTTP/1.1 200 OK\r\nX-A: ", forEver)))
	row("B-18", "headers and nothing else", false, next(ofDecode, func(w http.ResponseWriter, r *http.Request, l leg) {
		sayHeaders(w)
		silent(w, r, l)
	}))
	row("B-18", "accepts and reads nothing", true, atLeg(ofDecode, (*door).silence))
	row("B-51", "its machine is gone", true, func(c *cell) { c.decode[0].door.freeze() })
	faults[len(faults)-1].want = rescued(faults[len(faults)-1].want) // by another connection
	return faults
}

// wholeAnswerFaults are those of answers that come in one piece.
func wholeAnswerFaults() (faults []fault) {
	const phase = "decode's whole answer is read"
	row := func(id, name string, act behaviour, need func(*cell, *setup), w func(variant) want) {
		faults = append(faults, fault{row: id, phase: phase, name: name, needs: need, begin: next(ofDecode, act), except: onlyWhole, want: w})
	}
	bad := func(variant) want { return decodeFailed(502, "bad_decode_answer") }
	row("B-15", "garbage", replyBody("application/json", "<html>"), nil, bad)
	row("B-15", "truncated JSON", wireOf(func(l leg) string { return okJSON + whole(wholeAnswer(l)) }), nil, bad)
	row("B-15", "mid-UTF-8", wireOf(func(leg) string { return okJSON + whole("{\"id\":\"\xf0\x9f") }), nil, bad)
	faults = append(faults, fault{row: "B-19", phase: phase, name: "65 MiB", heavy: true, except: func(v variant) string {
		if v.ticket {
			return onlyWhole(v)
		}
		return takesSeconds
	}, begin: next(ofDecode, func(w http.ResponseWriter, _ *http.Request, _ leg) {
		answerJSON(w, `{"x":"`)
		piece := []byte(strings.Repeat("y", 1<<20))
		for range 65 {
			_, _ = w.Write(piece)
		}
		_, _ = io.WriteString(w, `"}`)
	}), want: func(v variant) want {
		w := served(v)
		w.body = func(leg) string { return `{"x":"` + strings.Repeat("y", 65<<20) + `"}` }
		w.stored, w.kept = "ineligible_unparsable", false
		return w
	}})
	row("B-17", "short of its length", raw(okJSON+"Content-Length: 500\r\n\r\n{\"id\":"), nil, restarted)
	row("B-17", "bad chunk", wireOf(func(l leg) string { return okJSON + chunked(wholeAnswer(l)) + "zz\r\n" }), nil, restarted)
	row("B-15", "breaks off", wireOf(func(l leg) string { return okJSON + chunked(wholeAnswer(l)) }), nil, restarted)
	row("B-18", "a body that stops", holds(func(leg) string { return okJSON + "Content-Length: 500\r\n\r\n{" }), limited(shortIdle()), func(variant) want {
		return decodeFailed(http.StatusGatewayTimeout, "stream_idle_timeout")
	})
	row("B-18", "slowly but in time", func(w http.ResponseWriter, r *http.Request, l leg) {
		drips(okJSON+whole(wholeAnswer(l)+`,"kv_transfer_params":`+ticket(l)+`}`), stays)(w, r, l)
	}, limited(shortIdle()), served)
	row("B-22", "no params", func(w http.ResponseWriter, _ *http.Request, l leg) { answerJSON(w, wholeAnswer(l)+"}") }, nil, func(v variant) want {
		w := served(v)
		w.stored, w.kept = "engine_sends_no_params", false
		return w
	})
	said := func(leg) string { return `{"error":{"message":"later","code":500}}` }
	row("B-13", "200 with an error", wireOf(func(l leg) string { return okJSON + whole(said(l)) }), nil, func(v variant) want {
		w := served(v)
		w.body, w.stored, w.kept, w.rescued = said, "incomplete", false, true
		return w
	})
	return faults
}
