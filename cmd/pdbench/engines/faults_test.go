package engines

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"carryover/cmd/pdbench/wire"
)

// TestFaults_EachIsNoticed provokes each fault once, behind a first turn that is as it should be.
func TestFaults_EachIsNoticed(t *testing.T) {
	none := Faults{}
	for _, tc := range []struct {
		name string
		do   func(t *testing.T, e *Pair, messages, ticket string)
		want Faults
		hits int
	}{
		{"a second turn as it should be", func(t *testing.T, e *Pair, messages, ticket string) {
			decodeLeg(t, e, messages, prefillLeg(t, e, messages, ticket))
		}, none, 1},
		{"a ticket that was cut to whole blocks", func(t *testing.T, e *Pair, messages, ticket string) {
			decodeLeg(t, e, messages, prefillLeg(t, e, messages, cut(t, ticket, 16)))
		}, none, 1},
		{"a release", func(t *testing.T, e *Pair, _, ticket string) {
			decodeLeg(t, e, otherFolk, prefillLeg(t, e, otherFolk, withTokens(t, ticket, "0")))
		}, none, 0},
		{"decode alone", func(t *testing.T, e *Pair, messages, _ string) {
			ask(t, e.Decode+ChatPath, "alone", chat(messages, streamed))
		}, none, 0},
		{"a ticket of another conversation", func(t *testing.T, e *Pair, _, ticket string) {
			decodeLeg(t, e, otherFolk, prefillLeg(t, e, otherFolk, ticket))
		}, Faults{MixUps: 1}, 0},
		{"a history that was rewritten", func(t *testing.T, e *Pair, messages, ticket string) {
			messages = strings.Replace(messages, "two turns", "ten turns", 1)
			decodeLeg(t, e, messages, prefillLeg(t, e, messages, ticket))
		}, Faults{MixUps: 1}, 0},
		{"a history without the answer", func(t *testing.T, e *Pair, _, ticket string) {
			decodeLeg(t, e, question, prefillLeg(t, e, question, ticket))
		}, Faults{MixUps: 1}, 0},
		{"more tokens than decode holds", func(t *testing.T, e *Pair, messages, ticket string) {
			decodeLeg(t, e, messages, prefillLeg(t, e, messages, withTokens(t, ticket, "40")))
		}, Faults{MixUps: 1}, 0},
		{"blocks of nobody", func(t *testing.T, e *Pair, messages, ticket string) {
			decodeLeg(t, e, messages, prefillLeg(t, e, messages, strings.Replace(ticket, "[[1,", "[[9,", 1)))
		}, Faults{MixUps: 1}, 0},
		{"a ticket twice", func(t *testing.T, e *Pair, messages, ticket string) {
			decodeLeg(t, e, messages, prefillLeg(t, e, messages, ticket))
			decodeLeg(t, e, messages, prefillLeg(t, e, messages, ticket))
		}, Faults{Twice: 1}, 1},
		{"a released ticket", func(t *testing.T, e *Pair, messages, ticket string) {
			decodeLeg(t, e, messages, prefillLeg(t, e, messages, withTokens(t, ticket, "0")))
			decodeLeg(t, e, messages, prefillLeg(t, e, messages, ticket))
		}, Faults{Twice: 1}, 0},
		{"a hand-over twice", func(t *testing.T, e *Pair, _, _ string) {
			handover := prefillLeg(t, e, question, NoTicket)
			decodeLeg(t, e, question, handover)
			decodeLeg(t, e, question, handover)
		}, Faults{Twice: 1}, 0},
		{"a hand-over of another request", func(t *testing.T, e *Pair, messages, _ string) {
			decodeLeg(t, e, messages, prefillLeg(t, e, question, NoTicket))
		}, Faults{MixUps: 1}, 0},
		{"a ticket to decode", func(t *testing.T, e *Pair, messages, ticket string) {
			decodeLeg(t, e, messages, ticket)
		}, Faults{MixUps: 1, Flags: 1}, 0},
		{"other ids than the messages'", func(t *testing.T, e *Pair, _, _ string) {
			ids := strings.Replace(prefillLeg(t, e, question, NoTicket), "{", `{"prompt_token_ids":[1,2,3],`, 1)
			decodeLeg(t, e, question, ids)
		}, Faults{MixUps: 1}, 0},
		{"a prefill leg that streams", func(t *testing.T, e *Pair, _, _ string) {
			_, answer := ask(t, e.Prefill+ChatPath, "p", chat(question, `"max_tokens":1,"stream":true,"kv_transfer_params":`+NoTicket))
			decodeLeg(t, e, question, params(t, answer))
		}, Faults{Flags: 1}, 0},
		{"a prefill leg of several tokens", func(t *testing.T, e *Pair, _, _ string) {
			_, answer := ask(t, e.Prefill+ChatPath, "p", chat(question, `"max_tokens":2,"kv_transfer_params":`+NoTicket))
			decodeLeg(t, e, question, params(t, answer))
		}, Faults{Flags: 1}, 0},
		{"a prefill leg without params", func(t *testing.T, e *Pair, _, _ string) {
			_, answer := ask(t, e.Prefill+ChatPath, "p", chat(question, `"max_tokens":1`))
			decodeLeg(t, e, question, params(t, answer))
		}, Faults{Flags: 1}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := startEngines(t, Pace{Chunks: 5})
			messages, ticket := firstTurn(t, e)
			tc.do(t, e, messages, ticket)
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
func cut(t *testing.T, ticket string, n int) string {
	t.Helper()
	if n != blockTokens {
		t.Fatal("one block")
	}
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
	if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: engine\r\nContent-Length: %d\r\n\r\n%s", ChatPath, len(body), body); err != nil {
		t.Fatal(err)
	}
	w := wire.NewReader(c)
	if _, err := w.Head(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Piece(); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if f, counts := mustFaults(t, e); f.Any() || counts.Aborted != 1 {
		t.Errorf("got %+v and %+v, want one that was aborted", f, counts)
	}
}
