package discovery

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"carryover/upstream"
	"carryover/upstream/zmq/zmtp"
)

// clocked runs body with registrations whose silence is looked at on a clock of its own, and with functions that say how
// many lines of the log have a part, and who is registered: role, name and address of each.
func clocked(t *testing.T, body func(t *testing.T, r *registrations, logged func(part string) int, listed func() string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		log := &bytes.Buffer{}
		r := newRegistrations(&ZMQ{Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))}, &refusals{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1) // one result
		go func() { ended <- r.sweepUntil(ctx) }()
		listed := func() string {
			synctest.Wait()
			var all []string
			for _, i := range r.list.now() {
				all = append(all, fmt.Sprintf("%s %s %s", i.Role, i.Name, kvEndpoints(i.Announced.Address)[0]))
			}
			return strings.Join(all, "; ")
		}
		logged := func(part string) int {
			r.mu.Lock() // held for each line
			defer r.mu.Unlock()
			return strings.Count(log.String(), part)
		}
		body(t, r, logged, listed)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func said(role, at, address string) zmtp.Message {
	return zmtp.Message{Frames: [][]byte{pack("type", role, "http_address", at, "zmq_address", kvAt(address))}}
}

func TestRegistrations_WhoIsSilentForTenSecondsIsRemoved(t *testing.T) {
	clocked(t, func(t *testing.T, r *registrations, logged func(part string) int, listed func() string) {
		r.take(said("P", "10.0.0.1:1", "10.0.0.1:2"))
		r.take(said("D", "10.0.0.2:1", "10.0.0.2:2"))
		for range 10 { // 30 seconds in which one of them goes on
			<-time.After(3 * time.Second)
			r.take(said("P", "10.0.0.1:1", "10.0.0.1:2"))
			if got := listed(); !strings.Contains(got, "prefill 10.0.0.1:1 10.0.0.1:2") {
				t.Fatalf("got %q, want the one that announces itself", got)
			}
		}
		if got := listed(); strings.Contains(got, "decode") {
			t.Errorf("got %q, want nobody who is silent", got)
		}
		<-time.After(9 * time.Second)
		if got := listed(); got == "" {
			t.Error("removed after 9 s")
		}
		<-time.After(3 * time.Second)
		if got := listed(); got != "" {
			t.Errorf("got %q after 12 s, want nobody", got)
		}
		r.take(said("D", "10.0.0.2:1", "10.0.0.2:2"))
		if got := listed(); got != "decode 10.0.0.2:1 10.0.0.2:2" {
			t.Errorf("got %q, want the one that is back", got)
		}
		if n := logged("an instance does not register any more"); n != 2 {
			t.Errorf("%d lines of removals, want 2", n)
		}
	})
}

func TestRegistrations_AnEngineThatHasChangedIsAnother(t *testing.T) {
	clocked(t, func(t *testing.T, r *registrations, logged func(part string) int, listed func() string) {
		r.take(said("P", "10.0.0.1:1", "10.0.0.1:2"))
		r.take(said("P", "10.0.0.3:1", "10.0.0.3:2"))
		r.take(said("P", "10.0.0.1:1", "10.0.0.1:3"))
		if got := listed(); got != "prefill 10.0.0.1:1 10.0.0.1:3; prefill 10.0.0.3:1 10.0.0.3:2" {
			t.Errorf("got %q, want the address that was told last", got)
		}
		r.take(said("D", "10.0.0.1:1", "10.0.0.1:3"))
		if got := listed(); got != "decode 10.0.0.1:1 10.0.0.1:3; prefill 10.0.0.3:1 10.0.0.3:2" {
			t.Errorf("got %q, want the role that was told last, and no other", got)
		}
		if n := logged("with other properties"); n != 2 {
			t.Errorf("%d lines of changes, want 2", n)
		}
	})
}

func TestRegistrations_WhatIsNoneIsCountedAndLeavesNothing(t *testing.T) {
	clocked(t, func(t *testing.T, r *registrations, logged func(part string) int, listed func() string) {
		for _, message := range []zmtp.Message{
			{}, {Frames: [][]byte{nil}}, {Frames: [][]byte{{}, {}}}, said("X", "10.0.0.1:1", "10.0.0.1:2"), said("P", "nowhere", "10.0.0.1:2"),
		} {
			r.take(message)
		}
		r.take(zmtp.Message{Frames: [][]byte{pack("type", "HELLO")}})
		if got := listed(); got != "" || r.refused.malformed.Load() != 5 || len(r.heard) != 0 {
			t.Errorf("got %q, %d refused, %d heard of; want nobody, 5 and none", got, r.refused.malformed.Load(), len(r.heard))
		}
		if debug, all := logged("level=DEBUG"), logged("\n"); debug != 5 || all != 5 {
			t.Errorf("%d lines at debug of %d, want 5 of 5", debug, all)
		}
	})
}

func TestRegistrations_AreBounded(t *testing.T) {
	clocked(t, func(t *testing.T, r *registrations, logged func(part string) int, listed func() string) {
		for n := range MaxRegistered + 3 {
			at := fmt.Sprintf("10.1.%d.%d:1", n/256, n%256)
			r.take(said("P", at, at))
		}
		if got := len(r.list.now()); got != MaxRegistered || r.refused.full.Load() != 3 {
			t.Fatalf("%d are registered and %d refused, want %d and 3", got, r.refused.full.Load(), MaxRegistered)
		}
		r.take(said("P", "10.1.0.0:1", "10.1.0.0:9")) // has its place
		if got := r.list.now()[0].Announced.Address; got != kvAt("10.1.0.0:9") {
			t.Errorf("one that is registered has the address %s, want the new one", got)
		}
		if n := logged("an engine may not register"); n != 1 {
			t.Errorf("%d lines for want of room, want one", n)
		}
		<-time.After(12 * time.Second)
		if got := listed(); got != "" || len(r.heard) != 0 {
			t.Errorf("%d are heard of, want none", len(r.heard))
		}
		r.take(said("P", "10.0.0.1:1", "10.0.0.1:2"))
		if got := listed(); got == "" {
			t.Error("there is room again, and the next one is refused")
		}
	})
}

func TestRegistrations_TimeThatTheProcessStoodStillCountsForNobody(t *testing.T) {
	r := newRegistrations(&ZMQ{}, &refusals{})
	r.take(said("P", "10.0.0.1:1", "10.0.0.1:2"))
	now := time.Now()
	r.sweep(now.Add(60*time.Second), 60*time.Second)
	if len(r.list.now()) != 1 {
		t.Fatal("removed, though nobody has been heard for a minute")
	}
	for n := range 12 {
		r.sweep(now.Add(time.Duration(61+n)*time.Second), time.Second)
	}
	if got := r.list.now(); len(got) != 0 || len(r.heard) != 0 {
		t.Errorf("got %v, want nobody: it is silent since", got)
	}
}

func TestRegistrations_PingsSetNothingAnew(t *testing.T) {
	r := newRegistrations(&ZMQ{}, &refusals{})
	var sets [][]upstream.Instance
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	first := make(chan struct{})
	go func() {
		defer close(done)
		r.list.watch(ctx, func(all []upstream.Instance) {
			if sets = append(sets, all); len(sets) == 1 {
				close(first)
			}
		})
	}()
	<-first
	for range 5 {
		r.take(said("P", "10.0.0.1:1", "10.0.0.1:2"))
	}
	cancel()
	<-done
	if len(sets) != 2 || len(sets[0]) != 0 || len(sets[1]) != 1 {
		t.Errorf("set %v, want an empty list and one with the instance", sets)
	}
}
