package engines

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"carryover/cmd/pdbench/wire"
)

// second is a conversation whose first turn was as it should be.
type second struct {
	t                *testing.T
	e                *Pair
	messages, ticket string
}

// turn runs both legs with a ticket.
func (c *second) turn(messages, ticket string) {
	decodeLeg(c.t, c.e, messages, prefillLeg(c.t, c.e, messages, ticket))
}

// asking runs both legs of a question, of which prefill's has these members.
func asking(members string) func(*second) {
	return func(c *second) {
		_, answer := ask(c.t, c.e.Prefill+ChatPath, "p", chat(question, members))
		decodeLeg(c.t, c.e, question, params(c.t, answer))
	}
}

// TestFaults_EachIsNoticed provokes each fault once, behind a first turn that is as it should be.
func TestFaults_EachIsNoticed(t *testing.T) {
	none := Faults{}
	for _, tc := range []struct {
		name string
		do   func(c *second)
		want Faults
		hits int
	}{
		{"a second turn as it should be", func(c *second) {
			c.turn(c.messages, c.ticket)
		}, none, 1},
		{"a ticket that was cut to whole blocks", func(c *second) {
			c.turn(c.messages, cut(c.t, c.ticket))
		}, none, 1},
		{"a release", func(c *second) {
			c.turn(otherFolk, withTokens(c.t, c.ticket, "0"))
		}, none, 0},
		{"decode alone", func(c *second) {
			ask(c.t, c.e.Decode+ChatPath, "alone", chat(c.messages, streamed))
		}, none, 0},
		{"a ticket of another conversation", func(c *second) {
			c.turn(otherFolk, c.ticket)
		}, Faults{MixUps: 1}, 0},
		{"a history that was rewritten", func(c *second) {
			c.messages = strings.Replace(c.messages, "two turns", "ten turns", 1)
			c.turn(c.messages, c.ticket)
		}, Faults{MixUps: 1}, 0},
		{"a history without the answer", func(c *second) {
			c.turn(question, c.ticket)
		}, Faults{MixUps: 1}, 0},
		{"more tokens than decode holds", func(c *second) {
			c.turn(c.messages, withTokens(c.t, c.ticket, "40"))
		}, Faults{MixUps: 1}, 0},
		{"blocks of nobody", func(c *second) {
			c.turn(c.messages, strings.Replace(c.ticket, "[[1,", "[[9,", 1))
		}, Faults{MixUps: 1}, 0},
		{"a ticket twice", func(c *second) {
			c.turn(c.messages, c.ticket)
			c.turn(c.messages, c.ticket)
		}, Faults{Twice: 1}, 1},
		{"a released ticket", func(c *second) {
			c.turn(c.messages, withTokens(c.t, c.ticket, "0"))
			c.turn(c.messages, c.ticket)
		}, Faults{Twice: 1}, 0},
		{"a hand-over twice", func(c *second) {
			handover := prefillLeg(c.t, c.e, question, NoTicket)
			decodeLeg(c.t, c.e, question, handover)
			decodeLeg(c.t, c.e, question, handover)
		}, Faults{Twice: 1}, 0},
		{"a hand-over of another request", func(c *second) {
			decodeLeg(c.t, c.e, c.messages, prefillLeg(c.t, c.e, question, NoTicket))
		}, Faults{MixUps: 1}, 0},
		{"a ticket to decode", func(c *second) {
			decodeLeg(c.t, c.e, c.messages, c.ticket)
		}, Faults{MixUps: 1, Flags: 1}, 0},
		{"other ids than the messages'", func(c *second) {
			ids := strings.Replace(prefillLeg(c.t, c.e, question, NoTicket), "{", `{"prompt_token_ids":[1,2,3],`, 1)
			decodeLeg(c.t, c.e, question, ids)
		}, Faults{MixUps: 1}, 0},
		{"a prefill leg that streams", asking(`"max_tokens":1,"stream":true,"kv_transfer_params":` + NoTicket), Faults{Flags: 1}, 0},
		{"a prefill leg of several tokens", asking(`"max_tokens":2,"kv_transfer_params":` + NoTicket), Faults{Flags: 1}, 0},
		{"a prefill leg without params", asking(`"max_tokens":1`), Faults{Flags: 1}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := startEngines(t, Pace{Chunks: 5})
			c := &second{t: t, e: e}
			c.messages, c.ticket = firstTurn(t, e)
			tc.do(c)
			if got, counts := mustFaults(t, e); got != tc.want || counts.Hits != tc.hits {
				t.Errorf("got %+v and %+v, want %+v and %d hits", got, counts, tc.want, tc.hits)
			}
		})
	}
}

// withTokens is a ticket with another number of tokens.
func withTokens(t *testing.T, ticket, n string) string {
	t.Helper()
	before, rest, found := strings.Cut(ticket, `"remote_num_tokens":`)
	_, after, _ := strings.Cut(rest, ",")
	if !found {
		t.Fatalf("no number in %s", ticket)
	}
	return before + `"remote_num_tokens":` + n + "," + after
}

// cut is a ticket of its first block alone.
func cut(t *testing.T, ticket string) string {
	t.Helper()
	first, rest, _ := strings.Cut(ticket, ",\"remote_engine_id")
	before, ids, _ := strings.Cut(first, "[[")
	id, _, _ := strings.Cut(ids, ",")
	return withTokens(t, before+"[["+id+"]],\"remote_engine_id"+rest, "16")
}

// TestFaults_WhatNobodyEndsIsALeak checks what is judged at the end only, on the ledger: the grace of the real thing is seconds.
func TestFaults_WhatNobodyEndsIsALeak(t *testing.T) {
	l, r := newLedger(), &chatRequest{maxTokens: 1, params: legParams{present: true, remoteDecode: true}}
	l.begin()
	l.prefill(r, "decode")
	if f, _, quiet := l.look(); f != (Faults{Leaks: 2}) || quiet {
		t.Errorf("a request and a hand-over are open, got %+v, quiet %v", f, quiet)
	}
	l.end(false)
	l.reset()
	if f, _, _ := l.look(); f != (Faults{Leaks: 1}) {
		t.Errorf("a reset forgets what is on its way: %+v", f)
	}
	for range ringSize {
		l.prefill(r, "decode")
	}
	if f, _, _ := l.look(); f.Leaks != ringSize+1 {
		t.Errorf("got %d leaks of %d hand-overs that nobody has read", f.Leaks, ringSize+1)
	}
	l.clear()
	if f, _, quiet := l.look(); f.Any() || !quiet {
		t.Errorf("the next contender inherits %+v", f)
	}
}

// TestStream_ItsReaderLeaves checks that a stream whose reader has gone is no leak.
func TestStream_ItsReaderLeaves(t *testing.T) {
	e := startEngines(t, Pace{Chunks: 100, Gap: longestGap})
	handover := prefillLeg(t, e, question, NoTicket)
	c, err := net.DialTimeout("tcp", strings.TrimPrefix(e.Decode, "http://"), time.Minute)
	must(t, err)
	body := chat(question, `"stream":true,"kv_transfer_params":`+handover)
	_, err = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: engine\r\nContent-Length: %d\r\n\r\n%s", ChatPath, len(body), body)
	must(t, err)
	w := wire.NewReader(c)
	_, err = w.Head()
	must(t, err)
	_, err = w.Piece()
	must(t, err)
	c.Close()
	if f, counts := mustFaults(t, e); f.Any() || counts.Aborted != 1 {
		t.Errorf("got %+v and %+v, want one that was aborted", f, counts)
	}
}
