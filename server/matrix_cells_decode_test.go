package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"carryover/server"
)

// Decode legs that fail before the client has anything of their answer.

// What is expected of turns, see expects.
const (
	// Fresh legs of both kinds have saved it, the first hand-over being spent.
	restarted = retried + " decode=handed,handed rescued"
	// Decode has saved it by itself, after it could not load the KV of the only prefill instance.
	leftAlone = thenAlone + " decode=handed,alone rescued"
	// The client gets an error after decode had the hand-over; ticket and hand-over are spent.
	decodeFailed = "status=502 code=decode_failed prefill=first decode=handed rescued"
	// It gets one after a restart.
	decodeFailedTwice = decodeFailed + " prefill=first,plain decode=handed,handed"
	// No decode instance takes it; the ticket is spent.
	noDecode = "status=503 code=decode_unavailable retry=1 prefill=first"
	// The turn has seen that the holder of its ticket is gone, and has left the ticket where it is.
	instanceGone = served + " ticket:reuse=miss;reason=instance_gone prefill=plain decode="
)

// decodeDialFaults are those of connections to decode instances.
func decodeDialFaults() []fault {
	const other = served + " decode=handed@1"
	refuses, hole := atLeg(ofDecode, (*door).shut), atLeg(ofDecode, (*door).hole)
	before := func(c *cell) {
		c.deps.Legs.Close()
		c.decode[0].door.shut()
	}
	return during("decode is dialled",
		row("B-12", "all refuse", refuses, noDecode, withDoors),
		row("B-12", "all refuse already when decode's start is read", before, noDecode+" prefill=plain ticket:kept", withDoors),
		row("B-12", "one of two refuses already when its start is read", before, instanceGone+"handed@1", withDoors, twoDecodes),
		row("B-12", "black hole", hole, noDecode, withDoors, shortDials),
		row("B-12", "one of two refuses", refuses, other, withDoors, twoDecodes),
		row("B-12", "one of two is a black hole", hole, other, withDoors, twoDecodes, shortDials),
		row("B-12", "one of two refuses when the hand-over is too old", refuses, noDecode, withDoors, twoDecodes,
			configured(func(cfg *server.Config) { cfg.HandoverBudget = time.Nanosecond })),
	)
}

// decodeFailures are answers without a body for the client.
func decodeFailures() (faults []fault) {
	refused := func(id, name string, act behaviour, want string) {
		faults = append(faults, row(id, name, next(ofDecode, act), decodeFailed+want))
	}
	for _, code := range []int{400, 404, 413, 422} {
		refused("B-13", http.StatusText(code), status(code, "bad"), fmt.Sprintf(" status=%d code=invalid_request", code))
	}
	for _, code := range []int{401, 403} {
		refused("B-13", fmt.Sprint(code), status(code, "key sk-123"), " code=upstream_auth")
	}
	refused("B-13", "429", status(429, "busy", "Retry-After", "9"), " status=429 code=rate_limited retry=9")
	refused("B-13", "another content type", replyBody("text/html", "x"), " code=bad_decode_answer")
	refused("B-13", "gzip", replyBody("application/json", zipped("{}"), "Content-Encoding", "gzip"), " code=bad_decode_answer")
	for _, code := range []int{301, 302, 307, 308} {
		refused("B-11", "redirect "+http.StatusText(code), redirects(code), "")
	}
	for _, f := range []struct {
		row, name string
		act       behaviour
		always    string
	}{
		{"B-13", "502", status(502, "x"), ""},
		{"B-13", "503", status(503, "x", "Retry-After", "7"), " status=503 retry=7"},
		{"B-13", "504", status(504, "x"), ""},
		{"B-13", "reset", resets, ""},
		{"B-13", "end of the connection", hangUp, ""},
		{"B-17", "no HTTP", raw("hello\r\n\r\n"), ""},
		{"B-17", "bad length", raw("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"), ""},
		{"B-17", "80 KiB of headers", raw("HTTP/1.1 200 OK\r\nX-Y: " + strings.Repeat("y", 80<<10) + "\r\n\r\n"), ""},
		{"B-17", "bad chunk before anything else", raw(okEvents + "Transfer-Encoding: chunked\r\n\r\nzz\r\n"), ""},
		{"B-14", "end of the connection behind the headers", breaks(nothing, ""), ""},
	} {
		faults = append(faults,
			row(f.row, f.name+", once", next(ofDecode, f.act), restarted),
			row(f.row, f.name+", always", always(ofDecode, f.act), decodeFailedTwice+f.always))
	}
	loadFails := status(500, "KV load failed")
	return during("decode answers", append(faults,
		row("B-11", "100, 103 and a trailer around 200", next(ofDecode, prefaced(decodes)), served),
		row("B-47", "500, once", next(ofDecode, loadFails), leftAlone),
		row("B-47", "500, always", always(ofDecode, loadFails), decodeFailed+" decode=handed,alone"),
		row("B-47", "500, by the first of two", next(ofDecode, loadFails), leftAlone+" decode=handed,alone@1", twoDecodes),
		row("B-47", "500, of the first of two", next(ofDecode, loadFails), restarted+" prefill=first,plain@1", twoPrefills),
	)...)
}

// decodeTimeouts are legs that decode does not begin to answer.
func decodeTimeouts() (faults []fault) {
	add := func(id, name string, begin func(*cell), want string) {
		faults = append(faults, row(id, name, begin, decodeFailed+" status=504 code=decode_timeout"+want, withDoors, limited(shortLimits{firstByte: soonOver})))
	}
	add("B-18", "silent", next(ofDecode, silent), "")
	add("B-18", "headers that never end", next(ofDecode, drips(same("HTTP/1.1 200 OK\r\nX-A: "), forEver)), "")
	add("B-18", "headers and nothing else", next(ofDecode, stops(0)), "")
	add("B-18", "accepts and reads nothing", atLeg(ofDecode, (*door).silence), " decode= rescued=")
	add("B-51", "its machine is gone", machineGone(ofDecode), " decode=") // the rescue takes another connection
	return during("decode is waited for", faults...)
}

// wholeAnswerFaults are those of answers that come in one piece.
func wholeAnswerFaults() (faults []fault) {
	const bad = decodeFailed + " code=bad_decode_answer"
	add := func(id, name string, act behaviour, want string, options ...option) {
		faults = append(faults, row(id, name, next(ofDecode, act), want, append([]option{onlyWhole}, options...)...))
	}
	add("B-15", "garbage", replyBody("application/json", "<html>"), bad)
	add("B-15", "truncated JSON", wireOf(func(l leg) string { return okJSON + whole(wholeAnswer(l)) }), bad)
	add("B-15", "mid-UTF-8", raw(okJSON+whole("{\"id\":\"\xf0\x9f")), bad)
	large := func(leg) string { return `{"x":"` + strings.Repeat("y", 65<<20) + `"}` }
	add("B-19", "65 MiB", func(w http.ResponseWriter, _ *http.Request, l leg) { answerJSON(w, large(l)) },
		served+" stored=ineligible_unparsable kept=", heavy, showing(large), func(f *fault) {
			f.except = func(v variant) string {
				if v.ticket && !v.stream {
					return ""
				}
				return takesSeconds
			}
		})
	add("B-17", "short of its length", raw(okJSON+"Content-Length: 500\r\n\r\n{\"id\":"), restarted)
	add("B-17", "bad chunk", wireOf(func(l leg) string { return okJSON + chunked(wholeAnswer(l)) + "zz\r\n" }), restarted)
	add("B-15", "breaks off", wireOf(func(l leg) string { return okJSON + chunked(wholeAnswer(l)) }), restarted)
	add("B-18", "a body that stops", holds(same(okJSON+"Content-Length: 500\r\n\r\n{")), decodeFailed+" status=504 code=stream_idle_timeout", shortIdle)
	add("B-18", "slowly but in time", drips(decoded, stays), served, limited(shortLimits{idle: 4 * soonOver}))
	add("B-22", "no params", func(w http.ResponseWriter, _ *http.Request, l leg) { answerJSON(w, wholeAnswer(l)+"}") }, served+" stored=engine_sends_no_params kept=")
	said := func(leg) string { return `{"error":{"message":"later","code":500}}` }
	add("B-13", "200 with an error", replyBody("application/json", said(leg{})), served+" stored=incomplete kept= rescued", showing(said))
	return during("decode's whole answer is read", faults...)
}

// decoded is a good answer of decode as it goes over the wire.
func decoded(l leg) string {
	if l.streams() {
		return okEvents + chunked(frames(chatEvents(l)...)) + "0\r\n\r\n"
	}
	return okJSON + whole(wholeAnswer(l)+`,"kv_transfer_params":`+ticket(l)+`}`)
}
