package health

import (
	"strings"
	"testing"
	"time"
)

func TestSilent(t *testing.T) {
	for name, row := range map[string]struct {
		now, waits, heard, limit, refuse int64
		want                             bool
	}{
		"nothing waits":                     {100, 0, 0, 10, 0, false},
		"nothing waits, heard long ago":     {100, 0, 1, 10, 0, false},
		"one waits for less than that":      {100, 91, 0, 10, 0, false},
		"one waits for as long":             {100, 90, 0, 10, 0, true},
		"heard before":                      {100, 90, 80, 10, 0, true},
		"heard meanwhile":                   {100, 50, 91, 10, 0, false},
		"heard meanwhile, but long ago":     {100, 50, 90, 10, 0, true},
		"its circuit is open":               {100, 0, 0, 10, 101, true},
		"its circuit is half-open":          {101, 0, 0, 10, 101, false},
		"half-open, and one waits too long": {101, 80, 0, 10, 90, true},
	} {
		h := &Health{}
		h.waits.Store(row.waits)
		h.heard.Store(row.heard)
		h.limit.Store(row.limit)
		h.refuse.Store(row.refuse)
		if got := h.Silent(time.Duration(row.now)); got != row.want {
			t.Errorf("%s: silent %t, want %t", name, got, row.want)
		}
	}
}

// Several times the longest first byte of late; a short limit of the operator's is a short patience.
func TestSilence_Limit(t *testing.T) {
	for _, row := range []struct{ limit, took, want time.Duration }{
		{300 * time.Second, 0, 10 * time.Second},
		{300 * time.Second, 2 * time.Second, 10 * time.Second},
		{300 * time.Second, 5 * time.Second, 20 * time.Second},
		{300 * time.Second, time.Minute, 40 * time.Second}, // as for ten seconds: it may have hung
		{8 * time.Second, 0, 2 * time.Second},
		{8 * time.Second, time.Second, 4 * time.Second},
	} {
		r := newRole(t, 1)
		h := r.members[0].Health
		answer := func(took time.Duration) {
			w := h.Wait(row.limit)
			r.pass(took)
			w.Heard()
		}
		answer(row.took)
		s := &h.is.silence
		if got := s.limit(); got != row.want || len(s.waiting) > 0 {
			t.Errorf("%v behind a first byte after %v: %v, want %v; %d wait", row.limit, row.took, got, row.want, len(s.waiting))
		}
		for range 50 {
			answer(0)
		}
		if row.took > 0 && s.limit() > 4*row.took && s.limit() != s.least {
			t.Errorf("%v is never forgotten: %v", row.took, s.limit())
		}
	}
}

func TestSilence(t *testing.T) {
	const one = "pass 1s; a waits S; pass 10s; a is suspected; a not usable;"
	const two = "pass 1s; a waits S; pass 1s; a waits T; pass 9s; a is suspected; a not usable;"
	scripts{
		"any leg ends it": two + "a waits W whole; a well; a answers; a is silent; logged 1 sends nothing to waiting streams;" + // nor does a probe or the headers of an API server
			"W heard; a is up; a not suspected; logged 1 is no longer silent; pass 1h; a not silent", // the streams wait for what is their own
		"an earlier stream that runs": "a waits R; R heard; pass 1s; a waits S;" + strings.Repeat("pass 9s; R heard; a not silent;", 10) + "pass 10s; a is silent; R heard; a not silent suspected; S over; a is closed",
		// The first of those that wait leaves; the engine has not answered therefore. When the last has left, one turn at a time tries it.
		"who waits leaves": two + "S over; a is silent; T over; T over; a is open silent; a why nothing to waiting streams;" +
			"pass 1s; a not silent; a is suspected; a begins 1; a waits U; a answers; a is silent; pass 11s; U over; a ends 1; a is silent;" + // a second turn would try it
			"pass 2s; a not silent; a is suspected; a begins 2; a waits U; a answers; a is silent; pass 11s; U over; a ends 2; a is silent;" +
			"pass 4s; a not silent; a is suspected; a begins 3; a waits U; a answers; a is silent; pass 11s; U over; a ends 3; a is silent;" +
			"pass 8s; a waits U; U heard; a not silent suspected; a is closed",
		"a restart ends it": one + "a restarts; a not silent suspected; S over; a is closed", // a stream of the process before opens nothing
		// What an engine has generated for other clients shows that it works, if it was behind the moment from which on it is silent.
		"one that generates for others": one + "a worked 11s; a is silent; a worked 4s; a not silent; pass 6s; a is silent; S over; a worked 0s; a not silent suspected",
	}.run(t)
}
