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

// dialFrom connects from another address of this machine.
func (r *rig) dialFrom(address string) net.Conn {
	r.t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	conn, err := dialer.DialContext(r.t.Context(), "tcp", strings.TrimPrefix(r.front.URL, "http://"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return conn
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
	r.until(func() bool { return r.send(with(`"x":"`+strings.Repeat("y", declared/2)+`"`)).status == http.StatusOK })
	answer, err := http.ReadResponse(bufio.NewReader(stalls), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.wantError(r.rest(answer), http.StatusServiceUnavailable, "overloaded")
	r.until(func() bool {
		bytes, accounts := r.server.Inflight()
		return bytes == 0 && accounts == 0
	})
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
			var conns []net.Conn
			begin := func(n int, declared int64) net.Conn {
				number := strings.NewReplacer("#", strconv.Itoa(n))
				conn := r.dialFrom(number.Replace(c.address))
				r.begin(conn, declared, arrives, number.Replace(c.greedy))
				return conn
			}
			for n := range held {
				conn := begin(n, declared)
				conns = append(conns, conn)
			}
			r.until(func() bool { return large.read.Load() == held*arrives })

			answer, err := http.ReadResponse(bufio.NewReader(begin(held, arrives)), nil)
			if err != nil {
				t.Fatal(err)
			}
			p := r.rest(answer)
			wantRetryAfter(t, p, "1")
			if e := r.wantError(p, 503, "overloaded"); !strings.Contains(e.Message, "of this client") {
				t.Errorf("got message %q, want it to name the client's own part", e.Message)
			}
			r.wantOK(r.send(with(`"x":"`+strings.Repeat("y", arrives)+`"`), c.other...), "miss;")

			for _, conn := range conns {
				_ = conn.Close()
			}
			r.until(func() bool {
				conn := begin(held, arrives) // white space, which is no JSON
				defer conn.Close()
				answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
				return err == nil && r.rest(answer).status == http.StatusBadRequest
			})
		})
	}
}

func TestInflight_GrowsWithWhatArrives(t *testing.T) {
	const size = 1 << 20
	for name, framing := range map[string]string{"length": fmt.Sprintf("Content-Length: %d", size), "chunked": "Transfer-Encoding: chunked"} {
		t.Run(name, func(t *testing.T) {
			var read atomic.Int64
			watch := func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					r.Body = &countedBody{r.Body, &read}
					next.ServeHTTP(w, r)
				})
			}
			gate := make(chan struct{})
			r := newRig(t, setup{front: watch, cfg: func(c *server.Config) { c.MaxBodyBytes = size + 1 }})
			r.prefill[0].next(waits(gate, prefills))
			body := with(`"x":"` + strings.Repeat("y", size-len(with(`"x":""`))) + `"`)
			conn := r.dial()
			_, _ = io.WriteString(conn, wire("POST "+chatPath, "", framing))
			sent := 0
			for _, n := range []int{1, 5000, 20_000, 200_000, size / 2, size/2 + 1, size} {
				part := body[sent:n]
				if sent = n; name == "chunked" {
					part = fmt.Sprintf("%x\r\n%s\r\n", len(part), part)
				}
				_, _ = io.WriteString(conn, part)
				r.until(func() bool { // for the moment of a step there is more
					held, _ := r.server.Inflight()
					return read.Load() == int64(n) && held >= int64(n) && held <= max(8<<10, 2*int64(n)+1)
				})
			}
			if name == "chunked" {
				_, _ = io.WriteString(conn, "0\r\n\r\n")
			}
			r.prefill[0].await(1)
			if held, clients := r.server.Inflight(); held < size || held > size+2 || clients != 1 {
				t.Errorf("%d bytes of %d clients are reserved while prefill works, want %d of one", held, clients, size)
			}
			close(gate)
			r.until(func() bool { held, clients := r.server.Inflight(); return held == 0 && clients == 0 })
		})
	}
}

// An open stream holds hashes of its prompt, and they are booked on its client.
func TestInflight_AStreamHoldsHashesOfItsPrompt(t *testing.T) {
	gate := make(chan struct{})
	r := newRig(t, setup{cfg: byTokens})
	r.prefill[0].always(prefillsIDs)
	r.decode[0].always(func(w http.ResponseWriter, req *http.Request, l leg) {
		events := answerOf(l).events()
		say(w, events[0])
		select {
		case <-gate:
			say(w, events[1:]...)
		case <-req.Context().Done():
		}
	})
	const tokens = 8000
	body := askIDs("c", true, count(10_000, tokens)...)
	resp, err := r.open(t.Context(), http.MethodPost, textPath, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	readUntil(t, resp.Body, "data: ")
	hashes := int64(8*tokens/rigBlock + 8*len(body)>>10) // of tokens in blocks, and of its outline in KiB
	if held, clients := r.server.Inflight(); clients != 1 || held < hashes || held > 2*hashes {
		t.Errorf("%d bytes are booked for a body of %d, want some %d for hashes", held, len(body), hashes)
	}
	close(gate)
	r.wantStored(1, "yes")
	_ = resp.Body.Close()
	r.until(func() bool { held, clients := r.server.Inflight(); return held == 0 && clients == 0 })
}

func TestInflight_IndexOfMessagesIsBooked(t *testing.T) {
	gate := make(chan struct{})
	r := newRig(t, setup{})
	r.prefill[0].always(waits(gate, prefills))
	const messages = 2000
	turn := `{"role":"user","content":"q"},{"role":"assistant","content":"a"},`
	body := `{"model":"m","messages":[` + strings.Repeat(turn, messages/2) + `{"role":"user","content":"q"}]}`
	answer := make(chan reply, 1)
	go func() { answer <- r.sendTo(chatPath, body) }()
	r.prefill[0].await(1)
	if held, _ := r.server.Inflight(); held < int64(len(body))*5/4 {
		t.Errorf("%d bytes are booked for a body of %d and its notes", held, len(body))
	}
	close(gate)
	r.wantOK(<-answer, "miss;")
	r.until(func() bool { held, _ := r.server.Inflight(); return held == 0 })
}
