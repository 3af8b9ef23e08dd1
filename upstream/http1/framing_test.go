package http1

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// What an answer has to look like, and what becomes of its connection.
func TestDo_ReadsAnAnswerInOneWayOnly(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	const chunkedOK = ok + "Transfer-Encoding: chunked\r\n\r\n"
	long := strings.Repeat("x", maxHead)
	type answered struct {
		answer string
		ends   bool // the server closes the connection behind it
		body   string
		err    error // of Do, or of reading
		again  bool  // the connection serves the next request
	}
	cases := []answered{
		{answer: ok + "\r\n{}", ends: true, body: "{}"},                                                  // until the end
		{answer: "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n{}", body: "{}"}, // HTTP/1.0
		{answer: ok + "Connection: x, Close\r\nContent-Length: 2\r\n\r\n{}", body: "{}"},                 // connection: close
		{answer: ok + "Content-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\n\r\n", body: "{}"},                  // bytes behind the length
		{answer: ok + "Content-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"},                                // bytes behind no body
		{answer: chunkedOK + "1\r\nx\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", body: "x"},                    // bytes behind the chunks
		{answer: "HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\n"},                                 // 204 with a length
		{answer: "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n"},                        // 204 with chunks
		{answer: "HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\n"},                               // 304 with a length
		{ends: true, err: io.ErrUnexpectedEOF},                                                           // nothing
		{answer: ok + "Content-Le", ends: true, err: io.ErrUnexpectedEOF},                                // half a header
		{answer: ok + "Content-Length: 3\r\n\r\n{}", ends: true, body: "{}", err: io.ErrUnexpectedEOF},   // half a length
		{answer: chunkedOK + "3\r\n{}", ends: true, body: "{}", err: io.ErrUnexpectedEOF},                // half a chunk
		{answer: chunkedOK + "2\r\n{}\r\n", ends: true, body: "{}", err: io.ErrUnexpectedEOF},            // no last chunk
		{answer: chunkedOK + "2\r\n{}\r\n0\r\n", ends: true, body: "{}", err: io.ErrUnexpectedEOF},       // half a last chunk
		{answer: chunkedOK + "1\r\nxy\r\n0\r\n\r\n", body: "x", err: errChunkEnd},                        // chunk longer than said
		{answer: chunkedOK + "1\r\nxy\n0\r\n\r\n", body: "x", err: errChunkEnd},                          // chunk without a CR
		{answer: chunkedOK + "1\r\nx\n0\r\n\r\n", body: "x", err: errChunkEnd},                           // chunk with a bare LF
		{answer: chunkedOK + "1\r\nx\r0\r\n\r\n", body: "x", err: errChunkEnd},                           // chunk with a bare CR
	}
	for _, kept := range [][2]string{ // answer and body
		{ok + "Content-Length: 2\r\n\r\n{}", "{}"},                                                                                                 // length
		{ok + "Content-Length: 0\r\n\r\n"},                                                                                                         // no body
		{"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n"},                                                                                              // no reason
		{ok + "Content-Length: \t2 \t\r\n\r\n{}", "{}"},                                                                                            // blanks around a value
		{chunkedOK + "3\r\nabc\r\n00a\r\n0123456789\r\n0\r\n\r\n", "abc0123456789"},                                                                // chunks
		{ok + "TRANSFER-encoding: Chunked\r\n\r\nA\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n", "01234567890123456789"},                         // upper and lower case
		{chunkedOK + "1;a=\"b\";c\r\nx\r\n0;d\r\n\r\n", "x"},                                                                                       // extension
		{chunkedOK + "1\r\nx\r\n0\r\nA: b\r\nContent-Length: 7\r\n\r\n", "x"},                                                                      // trailer
		{"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\nContent-Length: 7\r\n\r\n" + ok + "Content-Length: 1\r\n\r\nx", "x"}, // interim answers
		{"HTTP/1.1 204 No Content\r\n\r\n"},                                                                                                        // 204
		{"HTTP/1.1 304 Not Modified\r\n\r\n"},                                                                                                      // 304
		{ok + "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", "{}"},                                                                            // length twice
		{ok + "Connection: Keep-Alive\r\nContent-Length: 2\r\n\r\n{}", "{}"},                                                                       // connection: keep-alive
		{ok + "X: \x80\xff\r\nContent-Length: 2\r\n\r\n{}", "{}"},                                                                                  // opaque bytes
		{ok + "X: " + long[:maxHead-len(ok)-len("X: ")-len("\r\nContent-Length: 1\r\n\r\n")] + "\r\nContent-Length: 1\r\n\r\nx", "x"},              // header of 64 KiB
	} {
		cases = append(cases, answered{answer: kept[0], body: kept[1], again: true})
	}
	for refusal, answers := range map[error][]string{
		errStatusLine: {
			"HTTP/2.0 200 OK\r\n\r\n",     // HTTP/2
			"HTTP/1.2 200 OK\r\n\r\n",     // HTTP/1.2
			"SSH-2.0-OpenSSH_9.2\r\n",     // another protocol
			"http/1.1 200 OK\r\n\r\n",     // lower case
			"HTTP/1.1 20 OK\r\n\r\n",      // status of two digits
			"HTTP/1.1 2000 OK\r\n\r\n",    // status of four digits
			"HTTP/1.1 +20 OK\r\n\r\n",     // status with a sign
			"HTTP/1.1 099 OK\r\n\r\n",     // status 099
			"HTTP/1.1 600 OK\r\n\r\n",     // status 600
			"HTTP/1.1\t200 OK\r\n\r\n",    // no blank before a status
			"HTTP/1.1 200 O\x00K\r\n\r\n", // control byte in a reason
		},
		errLineEnd: {
			"HTTP/1.1 200 OK\n\n",                    // bare LF
			ok + "A: b\nContent-Length: 2\r\n\r\n{}", // bare LF in a header
		},
		errFieldValue: {
			ok + "A: b\rContent-Length: 2\r\n\r\n{}", // bare CR
			ok + "A: b\r\r\n\r\n",                    // bare CR before an end
			ok + "A: b\x00\r\n\r\n",                  // NUL in a value
			ok + "A: b\x7f\r\n\r\n",                  // DEL in a value
		},
		errFold: {
			ok + "A: b\r\n Content-Length: 2\r\n\r\n{}", // folded line
			ok + "A: b\r\n\tc\r\n\r\n{}",                // folded line by tabulator
			ok + " A: b\r\n\r\n{}",                      // folded status line
		},
		errFieldName: {
			ok + "A\r\n\r\n",                     // no colon
			ok + ": b\r\n\r\n",                   // no name
			ok + "Content-Length : 2\r\n\r\n{}",  // blank before the colon
			ok + "Content(Length): 2\r\n\r\n{}",  // name that is no token
			ok + "A\xc3\xa4: 2\r\n\r\n{}",        // name above ASCII
			"HTTP/1.1 100 Continue\r\nA\r\n\r\n", // broken interim answer
		},
		errHeadTooLarge: {
			ok + "X: " + long + "\r\n\r\n",               // header above 64 KiB
			ok + strings.Repeat("A: b\r\n", maxHead/6+1), // header without an end
		},
		errInterim: {
			strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", maxInterim+1), // too many interim answers
		},
		errUpgrade: {
			"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", // 101
		},
		errBothFramings: {
			ok + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", // length and chunks
			ok + "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\n{}\r\n0\r\n\r\n", // chunks and length
		},
		errLengths: {
			ok + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", // different lengths
		},
		errLength: {
			ok + "Content-Length: 2, 2\r\n\r\n{}",                 // list of lengths
			ok + "Content-Length: +2\r\n\r\n{}",                   // length with a sign
			ok + "Content-Length: -2\r\n\r\n{}",                   // negative length
			ok + "Content-Length:\r\n\r\n{}",                      // empty length
			ok + "Content-Length: 0x2\r\n\r\n{}",                  // hexadecimal length
			ok + "Content-Length: 18446744073709551618\r\n\r\n{}", // length that overflows
		},
		errCoding: {
			ok + "Transfer-Encoding: gzip\r\n\r\n{}",                                // coding
			ok + "Transfer-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}",       // identity
			ok + "Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",     // list of codings
			ok + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", // chunked twice
			ok + "Transfer-Encoding: \"chunked\"\r\n\r\n",                           // chunked in quotes
			ok + "Transfer-Encoding:\r\n\r\n",                                       // empty coding
			"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",        // chunks of HTTP/1.0
		},
		errChunkSize: {
			chunkedOK + "\r\nx\r\n",                                        // chunk without a size
			chunkedOK + "+1\r\nx\r\n",                                      // chunk with a sign
			chunkedOK + "-1\r\nx\r\n",                                      // negative chunk
			chunkedOK + "0x1\r\nx\r\n",                                     // chunk in 0x
			chunkedOK + " 1\r\nx\r\n",                                      // blank before a size
			chunkedOK + "1 \r\nx\r\n",                                      // blank behind a size
			chunkedOK + "10000000000000001\r\nx\r\n",                       // size that overflows
			chunkedOK + strings.Repeat("0", maxChunkDigits) + "1\r\nx\r\n", // size of many zeros
			chunkedOK + "1\nx\r\n0\r\n\r\n",                                // size with a bare LF
			chunkedOK + "1\rx\r\n0\r\n\r\n",                                // size with a bare CR
			chunkedOK + "1;a\rx\r\n0\r\n\r\n",                              // extension with a bare CR
		},
		errChunkNote: {
			chunkedOK + "1;a\nx\r\n0\r\n\r\n",                               // extension with a bare LF
			chunkedOK + "1;\x00\r\nx\r\n0\r\n\r\n",                          // extension with NUL
			chunkedOK + "1;" + long[:maxChunkNote+1] + "\r\nx\r\n0\r\n\r\n", // extension that is long
		},
		errTrailer: {
			chunkedOK + "0\r\nA: b\n\r\n",                                    // trailer with a bare LF
			chunkedOK + "0\r\nA: b\rc\r\n\r\n",                               // trailer with a bare CR
			chunkedOK + "0\r\nA\r\n\r\n",                                     // trailer without a colon
			chunkedOK + "0\r\n: b\r\n\r\n",                                   // trailer without a name
			chunkedOK + "0\r\nA: b\r\n c\r\n\r\n",                            // folded trailer
			chunkedOK + "0\r\nA: \x00\r\n\r\n",                               // trailer with NUL
			chunkedOK + "0\r\n" + strings.Repeat("A: b\r\n", maxTrailer/6+1), // trailer that is long
			chunkedOK + "0\r\n\n",                                            // end with a bare LF
			chunkedOK + "0\r\n\rHTTP/1.1 200 OK\r\n\r\n",                     // end with a bare CR
		},
	} {
		for _, answer := range answers {
			cases = append(cases, answered{answer: answer, err: refusal})
		}
	}
	for _, tc := range cases {
		t.Run(fmt.Sprintf("%.80q", tc.answer), func(t *testing.T) {
			s := newRaw(t, func(p *player, number int) {
				for first := number == 1; p.request(); first = false {
					if !first {
						p.say(ok + "Content-Length: 5\r\n\r\nagain")
						continue
					}
					p.say(tc.answer)
					if tc.ends {
						return
					}
				}
			})
			c := newClient(t)
			_, body, err := fetch(t, c, s.get())
			if body != tc.body || !errors.Is(err, tc.err) || (err == nil) != (tc.err == nil) {
				t.Errorf("got %.80q and %v, want %.80q and %v", body, err, tc.body, tc.err)
			}
			if _, body, err := fetch(t, c, s.get()); body != "again" || err != nil {
				t.Errorf("the next request got %.80q and %v", body, err)
			}
			if want := map[bool]int32{true: 1, false: 2}[tc.again]; s.conns.Load() != want {
				t.Errorf("got %d connections, want %d", s.conns.Load(), want)
			}
			for _, size := range []int{1, 2, 3, 7, 4096} { // the pieces in which it comes change nothing
				conn := &script{pieces: split(tc.answer, size)}
				client := scripted(conn)
				_, body, err := fetch(t, client, s.get())
				if !tc.ends && tc.err != nil && errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("in pieces of %d it is refused too late", size)
				}
				if body != tc.body || fmt.Sprint(err) != fmt.Sprint(tc.err) && tc.err != nil || (err == nil) != (tc.err == nil) {
					t.Errorf("in pieces of %d: got %.80q and %v, want %.80q and %v", size, body, err, tc.body, tc.err)
				}
				if reused := !conn.closed.Load(); reused && !tc.again && len(conn.pieces) == 0 {
					t.Errorf("in pieces of %d: the connection is kept", size)
				}
				client.Close()
			}
		})
	}
}

func TestDo_TellsWhatIsAskedOfAHeader(t *testing.T) {
	for header, want := range map[string][3]string{
		"Content-Type: text/event-stream; charset=utf-8\r\nContent-Type: text/html\r\nRetry-After: 7\r\nRetry-After: 8\r\n": {
			"text/event-stream; charset=utf-8", "", "7",
		},
		"content-TYPE:application/json\r\nContent-Encoding: identity\r\nContent-encoding: gzip\r\n": {
			"application/json", "identity, gzip", "",
		},
		"Content-Type:\r\nContent-Type: text/html\r\n": {},
	} {
		conn := &script{pieces: split("HTTP/1.1 503 Busy\r\n"+header+"Content-Length: 2\r\n\r\n{}", 4096)}
		r, err := scripted(conn).Do(t.Context(), (&raw{authority: "a"}).get())
		must(t, err)
		if got := [3]string{r.ContentType, r.ContentEncoding, r.RetryAfter}; r.Status != 503 || got != want || r.Left() != 2 {
			t.Errorf("%q: got %d %q, want %q", header, r.Status, got, want)
		}
		_ = r.Close()
	}
}
