package server

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/upstream"
)

// clock is a time that tests move.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

// startList returns a list with a clock, and a pair of instances that have met.
func startList(backlog int) (*releases, *clock) {
	c := &clock{at: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	r := newReleases(backlog)
	r.now = c.now
	r.met(carrier{"p@1", "d@1"})
	return r, c
}

// left is an unused ticket of start 1 of the decode instance d.
func (c *clock) left(name string) unused {
	return unused{params: []byte(name), decode: "d", incarnation: "1", deadline: c.at.Add(time.Hour)}
}

func wantTake(t *testing.T, r *releases, prefill, incarnation, want string) {
	t.Helper()
	u, ok := r.take(carrier{prefill, "d@" + incarnation}, "d", incarnation, false)
	if ok != (want != "") || string(u.params) != want {
		t.Errorf("take for %s to start %s: got %q, %v, want %q", prefill, incarnation, u.params, ok, want)
	}
}

func TestReleases_OldestFirstAndOnce(t *testing.T) {
	r, c := startList(8)
	for _, name := range []string{"a", "b"} {
		r.add(c.left(name))
	}
	wantTake(t, r, "p@1", "1", "a")
	wantTake(t, r, "p@1", "1", "b")
	wantTake(t, r, "p@1", "1", "")
}

// A reading of the engine that came too late says nothing about its blocks.
func TestReleases_WaitWhileTheStartIsUnknown(t *testing.T) {
	r, c := startList(8)
	r.add(c.left("a"))
	wantTake(t, r, "p@1", "", "")
	wantTake(t, r, "p@1", "1", "a")
}

func TestReleases_EachOnceWhoeverAsks(t *testing.T) {
	r, c := startList(8)
	for i := range maxUnused {
		r.add(c.left(fmt.Sprint(i)))
	}
	var mu sync.Mutex // guards seen
	seen := map[string]int{}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			c := carrier{"p@1", "d@1"}
			for u, ok := r.take(c, "d", "1", false); ok; u, ok = r.take(c, "d", "1", false) {
				mu.Lock()
				seen[string(u.params)]++
				mu.Unlock()
			}
		})
	}
	group.Wait()
	if len(seen) != maxUnused {
		t.Errorf("got %d tickets, want %d", len(seen), maxUnused)
	}
	for name, n := range seen {
		if n != 1 {
			t.Errorf("%s was handed out %d times", name, n)
		}
	}
}

func TestReleases_OnlyBetweenPairsThatHaveMet(t *testing.T) {
	r, c := startList(8)
	r.add(c.left("a"))
	wantTake(t, r, "p@2", "1", "")
	wantTake(t, r, "other@1", "1", "")
	wantTake(t, r, "p@1", "1", "a")
}

func TestReleases_DroppedWhenDecodeHasRestarted(t *testing.T) {
	r, c := startList(8)
	r.met(carrier{"p@1", "d@2"})
	r.add(c.left("of the first start"))
	of2 := c.left("of the second")
	of2.incarnation = "2"
	r.add(of2)
	wantTake(t, r, "p@1", "2", "of the second")
	wantTake(t, r, "p@1", "1", "")
}

func TestReleases_DroppedAtTheDeadline(t *testing.T) {
	r, c := startList(8)
	r.add(c.left("a"))
	c.at = c.at.Add(time.Hour)
	if all := r.waiting(); len(all) != 0 {
		t.Errorf("waiting: got %q, want none", all)
	}
	wantTake(t, r, "p@1", "1", "")
}

func TestReleases_PairPausesAfterAFailure(t *testing.T) {
	r, c := startList(8)
	r.met(carrier{"q@1", "d@1"})
	for _, name := range []string{"a", "b"} {
		r.add(c.left(name))
	}
	r.failed(carrier{"p@1", "d@1"})
	wantTake(t, r, "p@1", "1", "")
	wantTake(t, r, "q@1", "1", "a")
	c.at = c.at.Add(releasePause - time.Nanosecond)
	wantTake(t, r, "p@1", "1", "")
	c.at = c.at.Add(time.Nanosecond)
	wantTake(t, r, "p@1", "1", "b")
}

func TestReleases_DueByNumberOrByAge(t *testing.T) {
	r, c := startList(2)
	due := func(want int) {
		t.Helper()
		all := r.due()
		if len(all) != want {
			t.Errorf("due: got %q, want %d", all, want)
		}
	}
	r.add(c.left("a"))
	r.add(c.left("b"))
	due(0)
	c.at = c.at.Add(releaseAfter)
	due(1)
	due(0) // under work
	r.done("d")
	due(1)
	r.done("d")
	wantTake(t, r, "p@1", "1", "a")
	wantTake(t, r, "p@1", "1", "b")
	due(0)
	for _, name := range []string{"c", "d", "e"} {
		r.add(c.left(name))
	}
	due(1)
}

func TestReleases_AreBounded(t *testing.T) {
	r, c := startList(8)
	for i := range maxUnused + 10 {
		r.add(c.left(fmt.Sprint(i)))
	}
	if n := len(r.lists["d"]); n != maxUnused {
		t.Errorf("got %d tickets, want %d", n, maxUnused)
	}
}

// Instances are restarted, and come and go under ever new names.
func TestReleases_ForgetWhoHasGone(t *testing.T) {
	r, c := startList(8)
	for i := range maxCarriers + 10 {
		name := fmt.Sprint("d", i)
		pair := carrier{"p@1", name + "@1"}
		r.met(pair)
		r.failed(pair)
		u := c.left("a")
		u.decode = name
		r.add(u)
		c.at = c.at.Add(time.Hour)
		r.waiting()
	}
	if n := len(r.exchanged); n > maxCarriers {
		t.Errorf("remembers %d pairs that have exchanged KV, want %d at most", n, maxCarriers)
	}
	if len(r.paused) > 1 || len(r.lists) > 1 {
		t.Errorf("remembers %d pauses and the lists of %d instances, want none that is over", len(r.paused), len(r.lists))
	}
}

func TestReleases_WhatBecomesOfAFailedLegsRelease(t *testing.T) {
	for name, tc := range map[string]struct {
		leg    upstream.LegError
		waits  int
		paused bool
	}{
		"refused":                {upstream.LegError{Kind: upstream.Dial}, 1, false},
		"client gone before":     {upstream.LegError{Kind: upstream.Gone}, 1, false},
		"client gone after":      {upstream.LegError{Kind: upstream.Gone, Sent: true}, 0, false},
		"the client's own error": {upstream.LegError{Kind: upstream.Status, Status: 400, Sent: true}, 1, false},
		"the engine's error":     {upstream.LegError{Kind: upstream.Status, Status: 500, Sent: true}, 0, true},
		"no answer":              {upstream.LegError{Kind: upstream.Timeout, Sent: true, Err: upstream.ErrReuseTimeout}, 0, true},
		"broken in the middle":   {upstream.LegError{Kind: upstream.Broken, Sent: true, Err: errors.New("reset")}, 0, true},
		"unreadable good status": {upstream.LegError{Kind: upstream.Garbage, Sent: true}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t)
			s.releases.met(carrier{"p@1", "d@1"})
			c := &clock{at: time.Now()}
			u := c.left("a")
			s.releaseFailed(&held{release: &u, carrier: carrier{"p@1", "d@1"}}, &tc.leg)
			if n := len(s.releases.lists["d"]); n != tc.waits {
				t.Errorf("waiting: got %d, want %d", n, tc.waits)
			}
			if _, paused := s.releases.paused[carrier{"p@1", "d@1"}]; paused != tc.paused {
				t.Errorf("paused: got %v, want %v", paused, tc.paused)
			}
		})
	}
}

// startServer returns a server that talks to nobody.
func startServer(t *testing.T) *Server {
	t.Helper()
	secret, err := convcache.RandomSecret()
	if err != nil {
		t.Fatal(err)
	}
	return New(Config{Release: true, BranchKeep: time.Minute, MaxStreams: 1, Logger: slog.New(slog.DiscardHandler)}, Deps{Secret: secret})
}

func TestBranches_RetireInOrderAndInTime(t *testing.T) {
	b, now := &branches{}, time.Now()
	for i := range 2 {
		b.wait = append(b.wait, retiring{id: convcache.TicketID{byte(i)}, due: now.Add(time.Duration(i) * time.Minute)})
	}
	if got, ok := b.next(now); !ok || got.id != (convcache.TicketID{0}) {
		t.Errorf("first: got %v, %v", got.id, ok)
	}
	if got, ok := b.next(now.Add(time.Minute - time.Nanosecond)); ok {
		t.Errorf("too early: got %v", got.id)
	}
	if _, ok := b.next(now.Add(time.Minute)); !ok {
		t.Error("second: got none")
	}
	if got, ok := b.next(now.Add(time.Hour)); ok {
		t.Errorf("after the last: got %v", got.id)
	}
}

func TestBranches_OnlyThoseThatDivergeAreWatched(t *testing.T) {
	s := startServer(t)
	ids := func(n int, from uint32) []uint32 {
		list := make([]uint32, n)
		for i := range list {
			list[i] = from + uint32(i)
		}
		return list
	}
	chain := func(prompt []uint32) convcache.Chain {
		c, ok := s.chains.Grow(prompt, 16).Chain(len(prompt))
		if !ok {
			t.Fatal("no chain")
		}
		return c
	}
	shared := ids(32, 0)
	ticket := convcache.Ticket{Chain: chain(append(shared[:32:32], ids(32, 500)...))}
	s.watchBranches(&turn{branches: []convcache.Branch{
		{ID: convcache.TicketID{1}, Chain: chain(append(shared[:32:32], ids(32, 900)...))},
		{ID: convcache.TicketID{2}, Chain: chain(shared)},
		{ID: convcache.TicketID{3}, Chain: chain(ids(64, 2000))},
	}}, ticket)
	if len(s.branches.wait) != 1 || s.branches.wait[0].id != (convcache.TicketID{1}) {
		t.Errorf("watched: got %d, want the one that diverges", len(s.branches.wait))
	}
}
