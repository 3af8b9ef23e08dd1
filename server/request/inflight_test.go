package request

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"
)

func TestReservation_GrowsUpToItsBounds(t *testing.T) {
	a := NewInflight(1000, 100, time.Minute) // 250 for a client
	one, two := &Reservation{inflight: a, Account: "one"}, &Reservation{inflight: a, Account: "one"}
	want := func(what string, r *Reservation, n int64, refused string) {
		t.Helper()
		before := r.reserved
		err := r.Grow(n)
		if got := ""; err != nil {
			got = err.Error()
			if got != refused || r.reserved != before {
				t.Errorf("%s: got %q with %d held, want %q and the %d of before", what, got, r.reserved, refused, before)
			}
		} else if refused != "" || r.reserved != before+n {
			t.Errorf("%s: got %d held, want %d, refused %q", what, r.reserved, before+n, refused)
		}
	}
	const ofClient, ofAll = "Too many request bytes of this client in flight.", "Too many request bytes in flight."
	want("within the quarter", one, 200, "")
	want("up to the quarter", two, 50, "")
	want("beyond the quarter", two, 1, ofClient)
	var others []*Reservation
	for _, client := range []string{"a", "b", "c"} {
		other := &Reservation{inflight: a, Account: client}
		want("another client", other, 250, "")
		others = append(others, other)
	}
	last := &Reservation{inflight: a, Account: "d"}
	want("a fifth client", last, 1, ofAll)
	one.ShrinkTo(300)
	one.ShrinkTo(40)
	want("what was given back", last, 160, "")
	want("more than that", last, 1, ofAll)
	if len(a.accounts) != 5 || a.total != 1000 || one.reserved != 40 {
		t.Errorf("got %d bytes of %v, %d of the first", a.total, a.accounts, one.reserved)
	}
	for _, r := range append(others, one, two, last, &Reservation{}) {
		r.GiveBack()
		r.GiveBack()
	}
	if len(a.accounts) != 0 || a.total != 0 {
		t.Errorf("got %d bytes of %v after everything was given back", a.total, a.accounts)
	}
}

// Of an account that has no room, and of the one that has most where there is none for anybody, the body gives way that stalls for longest.
func TestReservation_WhatStallsGivesWay(t *testing.T) {
	i := NewInflight(1000, 100, time.Minute)
	stopped := ""
	arrives := func(account, name string, n int64, since time.Duration) *Reservation {
		r := &Reservation{inflight: i, Account: account}
		r.Begin(func() { stopped += name })
		if err := r.Grow(n); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		r.arriving.moved = time.Now().Add(-since)
		return r
	}
	first := arrives("a", "1", 100, time.Second)
	arrives("a", "2", 100, time.Second)
	if err := first.Moved(); err != nil {
		t.Fatal(err)
	}
	first.arriving.moved = time.Now().Add(-time.Second)
	moving := arrives("a", "3", 50, 0)
	other := arrives("a", "4", 100, 0) // in place of the second
	if err := (&Reservation{inflight: i, Account: "a"}).Grow(101); err == nil || stopped != "21" {
		t.Errorf("%v, and %q gave way, want 2 and 1, and those that move not", err, stopped)
	}
	if first.Moved() == nil || first.Grow(1) == nil || first.reserved != 0 || moving.Moved() != nil {
		t.Error("what gave way goes on, or another does not")
	}
	for _, account := range []string{"b", "c", "d"} {
		arrives(account, account, 250, 0)
	}
	other.arriving.moved = time.Now().Add(-time.Hour)
	if err := (&Reservation{inflight: i, Account: "e"}).Grow(150); err == nil || strings.Contains(stopped, "4") {
		t.Errorf("%v, and %q gave way, though an account has more that moves", err, stopped)
	}
	first.End()
	moving.End()
	first.GiveBack()
	if moving.reserved != 50 || i.arriving.Of("a").Newest().Value != other {
		t.Errorf("%d held", moving.reserved)
	}
}

func TestReservation_AddsUpConcurrently(t *testing.T) {
	a := NewInflight(1000, 10, time.Minute)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			r := &Reservation{inflight: a, Account: []string{"a", "b", "c"}[i%3]}
			for n := range int64(500) {
				if r.Grow(n%60) == nil {
					r.ShrinkTo(r.reserved / 2)
				}
			}
			r.GiveBack()
		})
	}
	all.Wait()
	if len(a.accounts) != 0 || a.total != 0 {
		t.Errorf("got %d bytes of %v after everything was given back", a.total, a.accounts)
	}
}

// heldReader checks before each read that all memory of a body is reserved, and that it is not much more than has arrived.
type heldReader struct {
	t    *testing.T
	body *bodyBuffer
	from io.Reader
}

func (h *heldReader) Read(p []byte) (int, error) {
	have, arrived := cap(h.body.bytes), len(h.body.bytes)
	if h.body.share.reserved != int64(have) || have > max(firstStep, 2*arrived+1) {
		h.t.Errorf("%d of %d bytes have arrived: memory for %d, reserved %d", arrived, h.body.size, have, h.body.share.reserved)
	}
	return h.from.Read(p)
}

// The largest body fits into an account that has room for nothing else, whatever its size.
func TestBodyBuffer_LargestBodyFits(t *testing.T) {
	sizes := []int{100_000, 131_071, 131_072, 131_073, 1<<20 + 1}
	for n := range 200 {
		sizes = append(sizes, n, firstStep-100+n, 4*firstStep-100+n)
	}
	for _, largest := range sizes {
		for known, size := range map[bool]int{true: largest, false: largest + 1} {
			text := bytes.Repeat([]byte("x"), largest)
			share := &Reservation{inflight: NewInflight(int64(largest), int64(largest), time.Minute), Account: "c"}
			body := &bodyBuffer{size: int64(size), share: share}
			err := body.readFrom(&heldReader{t, body, iotest.DataErrReader(bytes.NewReader(text))}, size+1)
			if !errors.Is(err, io.EOF) || !slices.Equal(body.bytes, text) || cap(body.bytes) > size {
				t.Fatalf("largest %d, length known %v: got %d bytes in %d, %v", largest, known, len(body.bytes), cap(body.bytes), err)
			}
		}
	}
}

func TestBodyBuffer_EndsAtItsSize(t *testing.T) {
	share := &Reservation{inflight: NewInflight(1000, 1000, time.Minute), Account: "c"}
	body := &bodyBuffer{size: 1000, share: share}
	more := bytes.NewReader(make([]byte, 2000))
	for range 2 {
		if err := body.readFrom(more, 5000); !errors.Is(err, io.EOF) || len(body.bytes) != 1000 || more.Len() != 1000 {
			t.Errorf("got %d bytes and %v, %d unread; want 1000 and the end", len(body.bytes), err, more.Len())
		}
	}
}

func TestBodyBuffer_StopsWhereTheAccountEnds(t *testing.T) {
	share := &Reservation{inflight: NewInflight(100_000, 50_000, time.Minute), Account: "c"}
	body := &bodyBuffer{size: 1 << 20, share: share}
	var refused *Error
	if err := body.readFrom(bytes.NewReader(make([]byte, 1<<20)), 1<<20); !errors.As(err, &refused) || refused.Code != "overloaded" {
		t.Errorf("got %v, want it refused", err)
	}
	if share.reserved != int64(cap(body.bytes)) || cap(body.bytes) != 1<<15 {
		t.Errorf("got %d reserved for %d bytes, want 32 KiB", share.reserved, cap(body.bytes))
	}
}

func TestOutgrown_LendsWhatFits(t *testing.T) {
	for n := int64(8 << 10); n < 5<<20; n = n*17/16 + 1 {
		var o outgrown
		lent := o.lend(n)
		size := len(*lent)
		o.take(lent)
		if again := len(*o.lend(n)); int64(size) < n || int64(size) > n+n/4+1 || again != size {
			t.Fatalf("%d bytes: lends %d, and then %d", n, size, again)
		}
	}
}
