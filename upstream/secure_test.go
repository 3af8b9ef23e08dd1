package upstream

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// stalling is a connection that sends one record and half of the next at once, and
// then stalls.
type stalling struct {
	net.Conn
	stall func() // nil writes at once
	first []byte
}

func (c *stalling) Write(p []byte) (int, error) {
	switch {
	case c.stall == nil:
		return c.Conn.Write(p)
	case c.first == nil:
		c.first = bytes.Clone(p)
		return len(p), nil
	}
	if _, err := c.Conn.Write(append(c.first, p[:len(p)/2]...)); err != nil {
		return 0, err
	}
	c.stall()
	c.stall = nil
	n, err := c.Conn.Write(p[len(p)/2:])
	return len(p)/2 + n, err
}

// secureLeg is a decode leg over TLS. Once its first event is there, answer plays the
// rest of the engine, in records as large as TLS allows.
func secureLeg(t *testing.T, answer func(wire *stalling, w io.Writer)) *leg {
	t.Helper()
	certified := httptest.NewUnstartedServer(http.NotFoundHandler())
	certified.StartTLS()
	t.Cleanup(certified.Close)
	config := certified.TLS.Clone()
	config.DynamicRecordSizingDisabled = true
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	begun, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		raw, err := listener.Accept()
		if err != nil {
			return
		}
		defer func() { _ = raw.Close() }()
		wire := &stalling{Conn: raw}
		w := tls.Server(wire, config)
		if r, err := http.ReadRequest(bufio.NewReader(w)); err == nil {
			_, _ = io.Copy(io.Discard, r.Body)
		}
		_, _ = io.WriteString(w, streamHead+event("one"))
		<-begun
		answer(wire, w)
	}()
	t.Cleanup(func() { _ = listener.Close(); <-over })
	client := newTestClient(t, "")
	client.trust(certified)
	instance, err := NewInstance(RoleDecode, "wire", "https://"+listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	l := &leg{t: t, stream: decodeFrom(t, client, &instance)}
	l.read("one")
	close(begun)
	return l
}

// What crypto/tls holds came before a connection that is empty afterwards: bytes of a
// record that are not handed over yet, and part of a record.
func TestStream_WhatTLSHoldsBackIsAsOldAsItIs(t *testing.T) {
	const full = 4096 - len("ff9\r\n\r\n") // with its framing it fills net/http's buffer
	first := event(strings.Repeat("x", full))
	for name, answer := range map[string]func(arrived chan<- time.Time, wire *stalling, w io.Writer){
		"an event of two records": func(arrived chan<- time.Time, _ *stalling, w io.Writer) {
			_, _ = io.WriteString(w, first+"c\r\nfinish")
			arrived <- time.Now()
			pass(2 * moment)
			_, _ = io.WriteString(w, " later\r\n0\r\n\r\n")
		},
		"a record in pieces": func(arrived chan<- time.Time, wire *stalling, w io.Writer) {
			wire.stall = func() {
				arrived <- time.Now()
				pass(2 * moment)
			}
			_, _ = io.WriteString(w, first)
			_, _ = io.WriteString(w, event("finish later")+"0\r\n\r\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			arrived := make(chan time.Time, 1)
			l := secureLeg(t, func(wire *stalling, w io.Writer) { answer(arrived, wire, w) })
			p := make([]byte, 4096)
			if n, err := l.stream.Read(p); n != full || err != nil {
				t.Fatalf("read %d bytes (%v), want %d", n, err, full)
			}
			l.read("finish later")
			l.wantBefore(<-arrived)
		})
	}
}

func TestRecords_AreFollowedHoweverTheyAreRead(t *testing.T) {
	wire := "\x16\x03\x03\x00\x02ab" + "\x17\x03\x03\x00\x00" + "\x17\x03\x03\x01\x04" + strings.Repeat("c", 260)
	ends := map[int]bool{0: true, 7: true, 12: true, len(wire): true}
	for size := 1; size <= len(wire); size++ {
		r := &records{}
		for at := 0; at < len(wire); {
			n := min(size, len(wire)-at)
			r.follow([]byte(wire[at : at+n]))
			if at += n; r.inside() == ends[at] {
				t.Fatalf("in reads of %d, after %d bytes: inside %v", size, at, r.inside())
			}
		}
	}
}
