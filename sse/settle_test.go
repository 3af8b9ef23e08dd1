package sse

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

func TestRelay_Verdicts(t *testing.T) {
	pad := strings.Repeat("x", 100)
	ends, breaks, stops := [2]error{io.EOF}, [2]error{errBroken, errBroken}, [2]error{io.EOF, ErrStopped}
	for _, tc := range []struct {
		input, want string
		end         [2]error // of the stream, and of Run
	}{
		{"data:hold\n\ndata:b\n\n", "data:hold\n\ndata:b\n\n", breaks},                                                        // held bytes go out before the next forwarded event
		{"data:hold1\n\ndata:hold2\n\ndata:b\n\n", "data:hold1\n\ndata:hold2\n\ndata:b\n\n", breaks},                          // several held
		{"data:a\n\ndata:hold\n\n", "data:a\n\ndata:hold\n\n", ends},                                                          // held at a clean end
		{"data:hold\n\ndata:b", "data:hold\n\ndata:b", ends},                                                                  // held and an unfinished event at a clean end
		{"data:a\n\ndata:hold\n\ndata:x", "data:a\n\n", breaks},                                                               // held at a read error
		{"data:a\n\ndata:hold\n\ndata:stop\n\ndata:b\n\n", "data:a\n\n", stops},                                               // held, then stopped
		{"data:a\n\ndata:stop\n\n", "data:a\n\n", stops},                                                                      // stopped at the last bytes
		{"data:stop\n\n", "", [2]error{errBroken, ErrStopped}},                                                                // stopped before a read error
		{"data:hold\n\ndata:drop\n\ndata:a\n\n", "data:hold\n\ndata:a\n\n", ends},                                             // held, then dropped
		{"data:hold\n\n: ping\n\ndata:stop\n\n", ": ping\n\n", stops},                                                         // a comment passes the held event
		{": ping\n\ndata:hold\n\ndata:stop\n\n", ": ping\n\n", stops},                                                         // a comment before it does not wait
		{"data:hold\n\ndata:a\n\n: ping\n\n", "data:hold\n\ndata:a\n\n: ping\n\n", breaks},                                    // nothing waits after the held event is out
		{"data:drop\r\n\r\ndata:a\n\n", "data:a\n\n", ends},                                                                   // LF of a dropped event
		{"data:hold\r\n\r\ndata:stop\n\n", "", stops},                                                                         // LF of a held event
		{"\xef\xbb\xbfdata:drop\n\n\xef\xbb\xbfdata:a\n\n", "\xef\xbb\xbf\xef\xbb\xbfdata:a\n\n", ends},                       // byte order mark of a dropped event stays
		{"\xef\xbb\xbfdata:stop\n\n", "", stops},                                                                              // byte order mark waits
		{"data:hold\n\ndata:" + pad + "\n\ndata:stop\n\n", "data:hold\n\ndata:" + pad + "\n\n", stops},                        // an oversize event takes the held ones along
		{strings.Repeat("data:hold\n\n", 6) + "data:stop\n\n", strings.Repeat("data:hold\n\n", 6), stops},                     // more held than an event may have
		{strings.Repeat("data:hold\n\n", 5) + "data:stop\n\n", "", stops},                                                     // as much held as an event may have
		{"data:{\"usage\":\"hold\",\"kv_transfer_params\":2}\n\ndata:a\n\n", "data:{\"usage\":\"hold\"}\n\ndata:a\n\n", ends}, // a cut event is held without its member
		{"data:{\"stop\":1,\"kv_transfer_params\":2}\n\ndata:a\n\n", "", stops},                                               // a cut event without substance stops all the same
		{"data:{\"hold\":1,\"kv_transfer_params\":2}\n\n", "", ends},                                                          // a cut event without substance is not held
		{"", "", breaks}, // broken before the first event
		{"data:a\n\ndata:b", "data:a\n\n", breaks},                                                                   // broken mid-event
		{"data:a\n\ndata:b\n", "data:a\n\n", breaks},                                                                 // broken before the blank line
		{"data:a\n\ndata:\xf0\x9f", "data:a\n\n", breaks},                                                            // broken in a UTF-8 sequence
		{"\xef\xbb", "", breaks},                                                                                     // broken in the byte order mark
		{"data:" + pad, "data:" + pad, breaks},                                                                       // broken in an oversize event
		{"data:hold1\n\ndata:hold2\n\ndata:super\n\n", "data:hold1\n\ndata:super\n\n", ends},                         // superseded, the last held
		{"data:a\n\ndata:hold\n\ndata:super\n\ndata:b\n\n", "data:a\n\ndata:super\n\ndata:b\n\n", ends},              // superseded, the only one held
		{"data:hold\n\n:c\n\ndata:super\n\n", ":c\n\ndata:super\n\n", ends},                                          // superseded with a comment behind it
		{"data:hold1\n\n:c\n\ndata:hold2\n\ndata:super\n\n", ":c\n\ndata:hold1\n\ndata:super\n\n", ends},             // superseded with a comment before it
		{"data:hold\r\n\r\ndata:super\r\n\r\n", "data:super\r\n\r\n", ends},                                          // superseded with lines that end in CRLF
		{"data:hold\n\ndata:drop\n\ndata:super\n\n", "data:super\n\n", ends},                                         // superseded behind what is dropped
		{"data:hold\n\ndata:super1\n\ndata:super2\n\n", "data:super1\n\n", ends},                                     // superseded once
		{"data:a\n\ndata:super\n\ndata:b\n\n", "data:a\n\ndata:b\n\n", ends},                                         // nothing is superseded where nothing is held
		{"data:hold\n\ndata:a\n\ndata:super\n\n", "data:hold\n\ndata:a\n\n", ends},                                   // nor where what was held has gone out
		{"data:hold\n\n", "data:hold\n\n", ends},                                                                     // what would have been superseded goes out at the end
		{"data:{\"usage\":\"drop\",\"kv_transfer_params\":2}\n\ndata:" + pad + "\n\n", "data:" + pad + "\n\n", ends}, // a cut event is dropped
	} {
		for name, src := range readings(tc.input, tc.end[0]) {
			out, _, err := run(src, Config{Strip: params, Substance: []string{"usage"}, MaxEvent: 55, Observe: func(e Event) Verdict { return verdictOf(e.Data) }})
			if !errors.Is(err, tc.end[1]) || (err != nil && tc.end[1] == nil) || out != tc.want {
				t.Errorf("%q, %s: got %v, want %v, relayed:\n got %q\nwant %q", tc.input, name, err, tc.end[1], out, tc.want)
			}
		}
	}
}

// What awaits the next event goes out when its time is over, although no read has returned, and nothing of it a second time.
func TestRelay_AwaitsForAWhile(t *testing.T) {
	for name, fails := range map[string]error{"client": nil, "client that left": io.ErrClosedPipe} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				from, engine := io.Pipe()
				got, client := io.Pipe()
				if fails != nil {
					_ = got.Close()
				}
				seen, began := "", time.Now()
				r := New(client, nil, Config{Patience: time.Second, Observe: func(e Event) Verdict { seen += string(e.Data); return verdictOf(e.Data) }})
				ended := make(chan error)
				go func() {
					err := r.Run(from)
					_ = client.Close()
					ended <- err
				}()
				go func() {
					_, _ = io.WriteString(engine, "data: await\n\nda")
					<-time.After(time.Hour)
					_, _ = io.WriteString(engine, "ta: a\n\n")
					_ = engine.Close()
				}()
				first := make([]byte, 100)
				n, _ := got.Read(first)
				waited := time.Since(began)
				rest, _ := io.ReadAll(got)
				if err := <-ended; !errors.Is(err, fails) || seen != "awaita" {
					t.Errorf("got %v of %q, want %v", err, seen, fails)
				}
				if fails == nil && (string(first[:n]) != "data: await\n\n" || waited != time.Second || string(rest) != "data: a\n\n") {
					t.Errorf("got %q after %v and then %q", first[:n], waited, rest)
				}
			})
		})
	}
}

// steps relays what is read step by step and returns what was written by the end of each.
func steps(cfg Config, reads ...string) (written []string, r *Relay, err error) {
	var out strings.Builder
	var steps []func() (string, error)
	for i, text := range reads {
		steps = append(steps, func() (string, error) {
			if i > 0 {
				written = append(written, out.String())
				out.Reset()
			}
			return text, nil
		})
	}
	steps = append(steps, func() (string, error) {
		written = append(written, out.String())
		out.Reset()
		return "", io.EOF
	})
	if cfg.Observe == nil {
		cfg.Observe = func(e Event) Verdict { return verdictOf(e.Data) }
	}
	r = New(&out, nil, cfg)
	err = r.Run(script(steps...))
	return append(written, out.String()), r, err
}

func TestAside_WhatHasNoDataGoesOutWhenItMay(t *testing.T) {
	long := ": " + strings.Repeat("x", 60)
	for name, tc := range map[string]struct {
		reads string // with a stroke between two
		want  string // by read, and at the end
	}{
		"before the first event":           {": ping\n\n|\n|id: 1\n\n|: a\r\n|data: a\n\n", ": ping\n\n|\n|id: 1\n\n|: a\r\n|data: a\n\n|"},
		"behind the first, which is held":  {"data: hold\n\n|: ping\n\n|id: 1\n\n|data: a\n\n", "|: ping\n\n||data: hold\n\nid: 1\n\ndata: a\n\n|"},
		"behind the first, which stops":    {": ping\n\n|data: hold\n\n|: ping\n\ndata: stop\n\n", ": ping\n\n||: ping\n\n|"},
		"behind one that waits":            {"data: await\n\n|: ping\n\n|data: await\n\n|data: drop\n\n|data: hold\n\n", "|: ping\n\n||data: await\n\ndata: await\n\n||data: hold\n\n"},
		"behind one that waits, then held": {"data: await\r\n\r\n|data: hold\n\n|data: a\n\n", "|data: await\r\n\r\n|data: hold\n\ndata: a\n\n|"},
		"behind an event, without a blank": {"data: a\n\n|: ping\n|: pi|ng\r|\n|data: b\n\n", "data: a\n\n|: ping\n||: ping\r|\n|data: b\n\n|"},
		"behind one that is held":          {"data: a\n\n|data: hold\n\n|: ping\n\n|\r|\n|id: 1\n\n|data: b\n\n", "data: a\n\n||: ping\n\n|\r|\n||data: hold\n\nid: 1\n\ndata: b\n\n|"},
		"behind one that is superseded":    {"data: a\n\n|data: hold\n\n|: ping\n\n|data: super\n\n", "data: a\n\n||: ping\n\n|data: super\n\n|"},
		"behind one that is dropped":       {"data: a\n\n|data: drop\n\n: ping\n\n|data: b\n\n", "data: a\n\n|: ping\n\n|data: b\n\n|"},
		"with a byte order mark":           {"\xef\xbb\xbf: ping\n|data: a\n\n", "\xef\xbb\xbf: ping\n|data: a\n\n|"},
		"behind a byte order mark":         {"\xef\xbb\xbfdata: hold\n\n|: ping\n|data: a\n\n", "|\xef\xbb\xbf: ping\n|data: hold\n\ndata: a\n\n|"},
		"too long to be held":              {long + "|data: x\n\n|data: a\n\n", long + "|data: x\n\n|data: a\n\n|"},
		"long, behind one that is held":    {"data: a\n\n|data: hold\n\n|" + long + "\n", "data: a\n\n||data: hold\n\n" + long + "\n|"},
		"long, in two":                     {"data: a\n\n|data: hold\n\n|" + long + "|y\n\n", "data: a\n\n||data: hold\n\n" + long + "|y\n\n|"},
	} {
		t.Run(name, func(t *testing.T) {
			got, r, err := steps(Config{MaxEvent: 50}, strings.Split(tc.reads, "|")...)
			if err != nil && !errors.Is(err, ErrStopped) {
				t.Fatal(err)
			}
			want := strings.Split(tc.want, "|")
			if stopped := errors.Is(err, ErrStopped); stopped { // no read follows
				got = append(got, slices.Repeat([]string{""}, len(want)-len(got))...)
			}
			if !slices.Equal(got, want) {
				t.Errorf("written\n got %q\nwant %q", got, tc.want)
			}
			if s := r.Stats(); s.Oversize != 0 || s.MidEvent {
				t.Errorf("got %+v, want no event that is too long or in the midst", s)
			}
		})
	}
}

// A comment that came long before the rest of its block says nothing of the age of the event.
func TestAside_CommentsBeginNoEvent(t *testing.T) {
	var log []string
	_, _, err := steps(Config{
		Begin: func() { log = append(log, "begin") },
		Observe: func(e Event) Verdict {
			log = append(log, fmt.Sprintf("%s %t", e.Data, e.Split))
			return Forward
		},
	}, ": ping\n", ": pi", "ng\n", "\n", "data: a\n\n", ": ping\nda", "ta: b\n\n")
	if want := []string{"a false", "begin", "b true"}; err != nil || !slices.Equal(log, want) {
		t.Errorf("got %q, %v; want %q", log, err, want)
	}
}

// An event of more than the usual size is held as long as there is room; else it passes, without the members that are to be null, and its
// beginning is told. What was taken is given back.
func TestRelay_LongEventsAreHeldWhileThereIsRoom(t *testing.T) {
	const unit = DefaultMaxEvent
	for _, row := range []struct {
		size, most int   // of the event, and MaxEvent
		room       int64 // that there is
		read       bool
	}{
		{unit / 2, 3 * unit, 0, true}, {5 * unit / 4, 3 * unit, 0, false}, {9 * unit / 4, 3 * unit, 5 * unit, false}, {9 * unit / 4, 3 * unit, 6 * unit, true},
		{7 * unit / 2, 3 * unit, 100 * unit, false}, {9 * unit / 4, 2 * unit, 100 * unit, false},
	} {
		event := fmt.Sprintf("data: {\"a\":\"%s\",\"params\":{\"b\":1},\"ids\":[2]}\n\n", strings.Repeat("x", row.size))
		taken, most, events, unread := int64(0), int64(0), 0, ""
		var out strings.Builder
		r := New(&out, nil, Config{
			MaxEvent: row.most, Blank: []string{"params", "ids"}, Observe: func(Event) Verdict { events++; return Forward },
			Unread: func(head []byte) { unread += string(head[:8]) },
			Room: func(n int64) bool {
				if n == 0 {
					taken = 0
				}
				if taken+n > row.room {
					return false
				}
				taken += n
				most = max(most, taken)
				return true
			},
		})
		const small = "data: {}\n\n"
		must(t, r.Run(iotest.HalfReader(strings.NewReader(small+event+event+small))))
		want, passed := event, strings.Replace(event, `{"b":1},"ids":[2]`, `null,"ids":null`, 1)
		wantUnread, blanked := "", ""
		if !row.read {
			want, wantUnread, blanked = passed, `data: {"data: {"`, `{"b":1}`
		}
		if out.String() != small+want+want+small || unread != wantUnread || string(r.Blanked()) != blanked {
			t.Errorf("%+v: %d bytes, %d events, unread %q, %q taken out", row, out.Len(), events, unread, r.Blanked())
		}
		if taken != 0 || row.read && most < int64(row.size-unit) {
			t.Errorf("%+v: %d bytes are taken, %d at most", row, taken, most)
		}
	}
}
