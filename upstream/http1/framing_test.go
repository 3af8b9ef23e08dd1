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
	for name, tc := range map[string]struct {
		answer string
		ends   bool // the server closes the connection behind it
		body   string
		err    error // of Do, or of reading
		again  bool  // the connection serves the next request
	}{
		"length":                   {answer: ok + "Content-Length: 2\r\n\r\n{}", body: "{}", again: true},
		"no body":                  {answer: ok + "Content-Length: 0\r\n\r\n", again: true},
		"no reason":                {answer: "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", again: true},
		"blanks around a value":    {answer: ok + "Content-Length: \t2 \t\r\n\r\n{}", body: "{}", again: true},
		"chunks":                   {answer: chunkedOK + "3\r\nabc\r\n00a\r\n0123456789\r\n0\r\n\r\n", body: "abc0123456789", again: true},
		"upper and lower case":     {answer: ok + "TRANSFER-encoding: Chunked\r\n\r\nA\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n", body: "01234567890123456789", again: true},
		"extension":                {answer: chunkedOK + "1;a=\"b\";c\r\nx\r\n0;d\r\n\r\n", body: "x", again: true},
		"trailer":                  {answer: chunkedOK + "1\r\nx\r\n0\r\nA: b\r\nContent-Length: 7\r\n\r\n", body: "x", again: true},
		"interim answers":          {answer: "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\nContent-Length: 7\r\n\r\n" + ok + "Content-Length: 1\r\n\r\nx", body: "x", again: true},
		"204":                      {answer: "HTTP/1.1 204 No Content\r\n\r\n", again: true},
		"304":                      {answer: "HTTP/1.1 304 Not Modified\r\n\r\n", again: true},
		"length twice":             {answer: ok + "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", body: "{}", again: true},
		"connection: keep-alive":   {answer: ok + "Connection: Keep-Alive\r\nContent-Length: 2\r\n\r\n{}", body: "{}", again: true},
		"opaque bytes":             {answer: ok + "X: \x80\xff\r\nContent-Length: 2\r\n\r\n{}", body: "{}", again: true},
		"header of 64 KiB":         {answer: ok + "X: " + long[:maxHead-len(ok)-len("X: ")-len("\r\nContent-Length: 1\r\n\r\n")] + "\r\nContent-Length: 1\r\n\r\nx", body: "x", again: true},
		"until the end":            {answer: ok + "\r\n{}", ends: true, body: "{}"},
		"HTTP/1.0":                 {answer: "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n{}", body: "{}"},
		"connection: close":        {answer: ok + "Connection: x, Close\r\nContent-Length: 2\r\n\r\n{}", body: "{}"},
		"bytes behind the length":  {answer: ok + "Content-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\n\r\n", body: "{}"},
		"bytes behind no body":     {answer: ok + "Content-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"},
		"bytes behind the chunks":  {answer: chunkedOK + "1\r\nx\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", body: "x"},
		"204 with a length":        {answer: "HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\n"},
		"204 with chunks":          {answer: "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n"},
		"304 with a length":        {answer: "HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\n"},
		"nothing":                  {ends: true, err: io.ErrUnexpectedEOF},
		"half a header":            {answer: ok + "Content-Le", ends: true, err: io.ErrUnexpectedEOF},
		"half a length":            {answer: ok + "Content-Length: 3\r\n\r\n{}", ends: true, body: "{}", err: io.ErrUnexpectedEOF},
		"half a chunk":             {answer: chunkedOK + "3\r\n{}", ends: true, body: "{}", err: io.ErrUnexpectedEOF},
		"no last chunk":            {answer: chunkedOK + "2\r\n{}\r\n", ends: true, body: "{}", err: io.ErrUnexpectedEOF},
		"half a last chunk":        {answer: chunkedOK + "2\r\n{}\r\n0\r\n", ends: true, body: "{}", err: io.ErrUnexpectedEOF},
		"HTTP/2":                   {answer: "HTTP/2.0 200 OK\r\n\r\n", err: errStatusLine},
		"HTTP/1.2":                 {answer: "HTTP/1.2 200 OK\r\n\r\n", err: errStatusLine},
		"another protocol":         {answer: "SSH-2.0-OpenSSH_9.2\r\n", err: errStatusLine},
		"lower case":               {answer: "http/1.1 200 OK\r\n\r\n", err: errStatusLine},
		"status of two digits":     {answer: "HTTP/1.1 20 OK\r\n\r\n", err: errStatusLine},
		"status of four digits":    {answer: "HTTP/1.1 2000 OK\r\n\r\n", err: errStatusLine},
		"status with a sign":       {answer: "HTTP/1.1 +20 OK\r\n\r\n", err: errStatusLine},
		"status 099":               {answer: "HTTP/1.1 099 OK\r\n\r\n", err: errStatusLine},
		"status 600":               {answer: "HTTP/1.1 600 OK\r\n\r\n", err: errStatusLine},
		"no blank before a status": {answer: "HTTP/1.1\t200 OK\r\n\r\n", err: errStatusLine},
		"control byte in a reason": {answer: "HTTP/1.1 200 O\x00K\r\n\r\n", err: errStatusLine},
		"bare LF":                  {answer: "HTTP/1.1 200 OK\n\n", err: errLineEnd},
		"bare LF in a header":      {answer: ok + "A: b\nContent-Length: 2\r\n\r\n{}", err: errLineEnd},
		"bare CR":                  {answer: ok + "A: b\rContent-Length: 2\r\n\r\n{}", err: errFieldValue},
		"bare CR before an end":    {answer: ok + "A: b\r\r\n\r\n", err: errFieldValue},
		"NUL in a value":           {answer: ok + "A: b\x00\r\n\r\n", err: errFieldValue},
		"DEL in a value":           {answer: ok + "A: b\x7f\r\n\r\n", err: errFieldValue},
		"folded line":              {answer: ok + "A: b\r\n Content-Length: 2\r\n\r\n{}", err: errFold},
		"folded line by tabulator": {answer: ok + "A: b\r\n\tc\r\n\r\n{}", err: errFold},
		"folded status line":       {answer: ok + " A: b\r\n\r\n{}", err: errFold},
		"no colon":                 {answer: ok + "A\r\n\r\n", err: errFieldName},
		"no name":                  {answer: ok + ": b\r\n\r\n", err: errFieldName},
		"blank before the colon":   {answer: ok + "Content-Length : 2\r\n\r\n{}", err: errFieldName},
		"name that is no token":    {answer: ok + "Content(Length): 2\r\n\r\n{}", err: errFieldName},
		"name above ASCII":         {answer: ok + "A\xc3\xa4: 2\r\n\r\n{}", err: errFieldName},
		"header above 64 KiB":      {answer: ok + "X: " + long + "\r\n\r\n", err: errHeadTooLarge},
		"header without an end":    {answer: ok + strings.Repeat("A: b\r\n", maxHead/6+1), err: errHeadTooLarge},
		"too many interim answers": {answer: strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", maxInterim+1), err: errInterim},
		"101":                      {answer: "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", err: errUpgrade},
		"broken interim answer":    {answer: "HTTP/1.1 100 Continue\r\nA\r\n\r\n", err: errFieldName},
		"length and chunks":        {answer: ok + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", err: errBothFramings},
		"chunks and length":        {answer: ok + "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\n{}\r\n0\r\n\r\n", err: errBothFramings},
		"different lengths":        {answer: ok + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", err: errLengths},
		"list of lengths":          {answer: ok + "Content-Length: 2, 2\r\n\r\n{}", err: errLength},
		"length with a sign":       {answer: ok + "Content-Length: +2\r\n\r\n{}", err: errLength},
		"negative length":          {answer: ok + "Content-Length: -2\r\n\r\n{}", err: errLength},
		"empty length":             {answer: ok + "Content-Length:\r\n\r\n{}", err: errLength},
		"hexadecimal length":       {answer: ok + "Content-Length: 0x2\r\n\r\n{}", err: errLength},
		"length that overflows":    {answer: ok + "Content-Length: 18446744073709551618\r\n\r\n{}", err: errLength},
		"coding":                   {answer: ok + "Transfer-Encoding: gzip\r\n\r\n{}", err: errCoding},
		"identity":                 {answer: ok + "Transfer-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}", err: errCoding},
		"list of codings":          {answer: ok + "Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", err: errCoding},
		"chunked twice":            {answer: ok + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", err: errCoding},
		"chunked in quotes":        {answer: ok + "Transfer-Encoding: \"chunked\"\r\n\r\n", err: errCoding},
		"empty coding":             {answer: ok + "Transfer-Encoding:\r\n\r\n", err: errCoding},
		"chunks of HTTP/1.0":       {answer: "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", err: errCoding},
		"chunk without a size":     {answer: chunkedOK + "\r\nx\r\n", err: errChunkSize},
		"chunk with a sign":        {answer: chunkedOK + "+1\r\nx\r\n", err: errChunkSize},
		"negative chunk":           {answer: chunkedOK + "-1\r\nx\r\n", err: errChunkSize},
		"chunk in 0x":              {answer: chunkedOK + "0x1\r\nx\r\n", err: errChunkSize},
		"blank before a size":      {answer: chunkedOK + " 1\r\nx\r\n", err: errChunkSize},
		"blank behind a size":      {answer: chunkedOK + "1 \r\nx\r\n", err: errChunkSize},
		"size that overflows":      {answer: chunkedOK + "10000000000000001\r\nx\r\n", err: errChunkSize},
		"size of many zeros":       {answer: chunkedOK + strings.Repeat("0", maxChunkDigits) + "1\r\nx\r\n", err: errChunkSize},
		"size with a bare LF":      {answer: chunkedOK + "1\nx\r\n0\r\n\r\n", err: errChunkSize},
		"size with a bare CR":      {answer: chunkedOK + "1\rx\r\n0\r\n\r\n", err: errChunkSize},
		"extension with a bare LF": {answer: chunkedOK + "1;a\nx\r\n0\r\n\r\n", err: errChunkNote},
		"extension with a bare CR": {answer: chunkedOK + "1;a\rx\r\n0\r\n\r\n", err: errChunkSize},
		"extension with NUL":       {answer: chunkedOK + "1;\x00\r\nx\r\n0\r\n\r\n", err: errChunkNote},
		"extension that is long":   {answer: chunkedOK + "1;" + long[:maxChunkNote+1] + "\r\nx\r\n0\r\n\r\n", err: errChunkNote},
		"chunk longer than said":   {answer: chunkedOK + "1\r\nxy\r\n0\r\n\r\n", body: "x", err: errChunkEnd},
		"chunk without a CR":       {answer: chunkedOK + "1\r\nxy\n0\r\n\r\n", body: "x", err: errChunkEnd},
		"chunk with a bare LF":     {answer: chunkedOK + "1\r\nx\n0\r\n\r\n", body: "x", err: errChunkEnd},
		"chunk with a bare CR":     {answer: chunkedOK + "1\r\nx\r0\r\n\r\n", body: "x", err: errChunkEnd},
		"trailer with a bare LF":   {answer: chunkedOK + "0\r\nA: b\n\r\n", err: errTrailer},
		"trailer with a bare CR":   {answer: chunkedOK + "0\r\nA: b\rc\r\n\r\n", err: errTrailer},
		"trailer without a colon":  {answer: chunkedOK + "0\r\nA\r\n\r\n", err: errTrailer},
		"trailer without a name":   {answer: chunkedOK + "0\r\n: b\r\n\r\n", err: errTrailer},
		"folded trailer":           {answer: chunkedOK + "0\r\nA: b\r\n c\r\n\r\n", err: errTrailer},
		"trailer with NUL":         {answer: chunkedOK + "0\r\nA: \x00\r\n\r\n", err: errTrailer},
		"trailer that is long":     {answer: chunkedOK + "0\r\n" + strings.Repeat("A: b\r\n", maxTrailer/6+1), err: errTrailer},
		"end with a bare LF":       {answer: chunkedOK + "0\r\n\n", err: errTrailer},
		"end with a bare CR":       {answer: chunkedOK + "0\r\n\rHTTP/1.1 200 OK\r\n\r\n", err: errTrailer},
	} {
		t.Run(name, func(t *testing.T) {
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
		s := newRaw(t, func(p *player, _ int) {
			p.request()
			p.say("HTTP/1.1 503 Busy\r\n" + header + "Content-Length: 2\r\n\r\n{}")
			p.gone()
		})
		r, err := newClient(t).Do(t.Context(), s.get())
		if err != nil {
			t.Fatal(err)
		}
		if got := [3]string{r.ContentType, r.ContentEncoding, r.RetryAfter}; r.Status != 503 || got != want || r.Left() != 2 {
			t.Errorf("%q: got %d %q, want %q", header, r.Status, got, want)
		}
		_ = r.Close()
	}
}
