package server

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"carryover/convcache"
	"carryover/convcache/clocktest"
	"carryover/upstream"
)

func TestPrefillLimit_ALegEndsBeforeDecodeMayFreeItsTicket(t *testing.T) {
	for name, tc := range map[string]struct {
		life, trial, want time.Duration
		cause             error
	}{
		"a second of life":     {time.Second, 100 * time.Second, 26 * time.Second, upstream.ErrTicketEnded},
		"at its deadline":      {0, 100 * time.Second, 25 * time.Second, upstream.ErrTicketEnded},
		"a shorter trial":      {time.Second, 10 * time.Second, 10 * time.Second, upstream.ErrReuseTimeout},
		"life enough":          {400 * time.Second, 100 * time.Second, 100 * time.Second, upstream.ErrReuseTimeout},
		"life and time enough": {400 * time.Second, 200 * time.Second, 120 * time.Second, upstream.ErrPrefillTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &Server{cfg: Config{PrefillTimeout: 120 * time.Second, ReuseTrialTimeout: tc.trial}, pace: upstream.NewPace()}
				began := time.Now()
				for _, deadline := range []time.Time{began.Add(tc.life), began.Add(tc.life).Round(0)} { // of this process, and of another
					ctx, cancel := s.prefillLimit(t.Context(), "p", 100, &held{ticket: &convcache.Ticket{Deadline: deadline}})
					defer cancel()
					if end, _ := ctx.Deadline(); end.Sub(began) != tc.want {
						t.Errorf("ends after %v, want %v", end.Sub(began), tc.want)
					}
				}
				ctx, cancel := s.prefillLimit(t.Context(), "p", 100, &held{ticket: &convcache.Ticket{Deadline: began.Add(tc.life)}})
				defer cancel()
				<-ctx.Done()
				if got := context.Cause(ctx); time.Since(began) != tc.want || !errors.Is(got, tc.cause) {
					t.Errorf("ended after %v with %v, want %v with %v", time.Since(began), got, tc.want, tc.cause)
				}
			})
		})
	}
}

func TestReleases_EndOnBothClocks(t *testing.T) {
	r, _ := startList(8)
	began := time.Now()
	r.add(unused{params: []byte("a"), decode: "d", incarnation: "1", deadline: began.Add(time.Minute)})
	r.now = func() time.Time { return clocktest.Apart(t, began.Add(time.Second), time.Hour) }
	wantTake(t, r, "p@1", "1", "")
}

func TestDeadline_CountsTheTimeThatAMachineWasSuspended(t *testing.T) {
	s := &Server{cfg: Config{TTL: 450 * time.Second}}
	decode := &upstream.Instance{KVTTL: 480 * time.Second}
	for expires, want := range map[bool]time.Duration{true: 350 * time.Second, false: 320 * time.Second} {
		caughtUp := clocktest.Apart(t, time.Now(), -100*time.Second)
		if got := -upstream.Elapsed(s.deadline(decode, caughtUp, expires), time.Now()); got > want || got < want-time.Minute {
			t.Errorf("tells when it expires: %v: got %v, want %v", expires, got, want)
		}
	}
}
