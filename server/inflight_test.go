package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"carryover/server"
)

// largeBodies counts the bytes that the server has read of bodies of a declared length.
type largeBodies struct {
	declared int64
	read     atomic.Int64
}

func (l *largeBodies) watch(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == l.declared {
			r.Body = &countedBody{r.Body, &l.read}
		}
		next.ServeHTTP(w, r)
	})
}

type countedBody struct {
	io.ReadCloser
	read *atomic.Int64
}

// Read implements io.Reader.
func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read.Add(int64(n))
	return n, err
}

// begin sends the head of a request whose body is declared to have so many bytes, and the first of them.
func (r *rig) begin(conn net.Conn, declared int64, arrives int, header ...string) {
	r.t.Helper()
	header = append(header, fmt.Sprintf("Content-Length: %d", declared))
	if _, err := io.WriteString(conn, wire("POST "+chatPath, strings.Repeat(" ", arrives), header...)); err != nil {
		r.t.Fatal(err)
	}
}

func TestInflight_OneByteReservesLittle(t *testing.T) {
	const idle, declared = 40, 1 << 20 // of which 32 fill what is allowed
	large := &largeBodies{declared: declared}
	r := newRig(t, setup{front: large.watch, cfg: func(c *server.Config) { c.MaxBodyBytes, c.MaxInflightBytes = declared, 32<<20 }})
	for range idle {
		r.begin(r.dial(), declared, 1)
	}
	p := reply{}
	r.until(func() bool { p = r.turn("", 1, false); return p.status != 200 || large.read.Load() == idle })
	r.wantOK(r.turn("", 1, false), "miss;")
	r.wantOK(p, "miss;")
}

// Bodies that stall make room for one of the same account, and are answered.
func TestInflight_WhatStallsGivesWay(t *testing.T) {
	const declared = 64 << 10
	large := &largeBodies{declared: declared}
	r := newRig(t, setup{front: large.watch, cfg: func(c *server.Config) {
		c.MaxBodyBytes, c.MaxInflightBytes, c.ClientBodyTimeout = declared, declared, 10*time.Second
	}})
	stalls := r.dial()
	r.begin(stalls, declared, declared-1, "Authorization: Bearer invented")
	r.until(func() bool { return large.read.Load() == declared-1 })
	r.until(func() bool { return r.send(with(`"x":"`+strings.Repeat("y", declared/2)+`"`)).status == http.StatusOK })
	answer, err := http.ReadResponse(bufio.NewReader(stalls), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.wantError(r.rest(answer), http.StatusServiceUnavailable, "overloaded")
}

func TestInflight_AQuarterPerClient(t *testing.T) {
	const declared, arrives, held = 64 << 10, 60 << 10, 3 // a fourth would be more than the quarter at its last step
	for name, c := range map[string]struct {
		tenantHeader    string
		address, greedy string   // of the greedy client, with a number of each request for #; the other is at 127.0.0.1
		other           []string // header names and values
	}{
		"header":            {"X-Tenant", "127.0.0.1", "X-Tenant: a", []string{"X-Tenant", "b"}},
		"header, not given": {"X-Tenant", "127.0.1.2", "Authorization: Bearer a", []string{"Authorization", "Bearer a"}},
		"addresses":         {"", "127.0.1.#", "Accept: */*", nil},
		"invented tokens":   {"", "127.0.1.2", "Authorization: Bearer #", nil},
	} {
		t.Run(name, func(t *testing.T) {
			large := &largeBodies{declared: declared}
			r := newRig(t, setup{front: large.watch, cfg: func(cfg *server.Config) {
				cfg.MaxBodyBytes, cfg.MaxInflightBytes, cfg.TenantHeader, cfg.ClientBodyTimeout = declared, 1<<20, c.tenantHeader, time.Hour
			}})
			begin := func(n int, declared int64) net.Conn {
				number := strings.NewReplacer("#", strconv.Itoa(n))
				conn := r.dialFrom(number.Replace(c.address))
				r.begin(conn, declared, arrives, number.Replace(c.greedy))
				return conn
			}
			for n := range held {
				begin(n, declared)
			}
			r.until(func() bool { return large.read.Load() == held*arrives })
			last := begin(held, arrives)
			answer, err := http.ReadResponse(bufio.NewReader(last), nil)
			if err != nil {
				t.Fatal(err)
			}
			p := r.rest(answer)
			wantRetryAfter(t, p, "1")
			if e := r.wantError(p, 503, "overloaded"); !strings.Contains(e.Message, "of this client") {
				t.Errorf("got message %q, want it to name the client's own part", e.Message)
			}
			r.wantOK(r.send(with(`"x":"`+strings.Repeat("y", arrives)+`"`), c.other...), "miss;")
		})
	}
}

// An open stream holds hashes of its prompt, and they are booked on its client.
func TestInflight_AStreamHoldsHashesOfItsPrompt(t *testing.T) {
	gate := make(chan struct{})
	r := newRig(t, setup{cfg: byTokens})
	r.prefill[0].always(prefillsIDs)
	r.decode[0].always(pausing(func(l leg) []string { return answerOf(l).events() }, 1, gate))
	const tokens = 8000
	body := askIDs("c", true, count(10_000, tokens)...)
	resp := r.opens(t.Context(), textPath, body)
	readUntil(t, resp.Body, "data: ")
	hashes := int64(8*tokens/rigBlock + 8*len(body)>>10) // of tokens in blocks, and of its outline in KiB
	if held, clients := r.server.Inflight(); clients != 1 || held < hashes || held > 2*hashes {
		t.Errorf("%d bytes are booked for a body of %d, want some %d for hashes", held, len(body), hashes)
	}
	close(gate)
	r.wantStored(1, "yes")
	_ = resp.Body.Close()
}

func TestInflight_IndexOfMessagesIsBooked(t *testing.T) {
	gate := make(chan struct{})
	r := newRig(t, setup{})
	r.prefill[0].always(waits(gate, prefills))
	const messages = 2000
	body := ask("", false, history(messages/2)...)
	answer := make(chan reply, 1)
	go func() { answer <- r.sendTo(chatPath, body) }()
	r.prefill[0].await(1)
	if held, clients := r.server.Inflight(); held < int64(len(body))*5/4 || held > int64(len(body))*3 || clients != 1 {
		t.Errorf("%d bytes of %d clients are booked for a body of %d and its notes", held, clients, len(body))
	}
	close(gate)
	r.wantOK(<-answer, "miss;")
}
