package redisstore_test

import (
	"testing"
	"time"

	"carryover/convcache/clocktest"
	"carryover/convcache/redistest"
)

// A ticket from this process' memory that goes to Redis: what is stored there has a wall reading only.
func TestRedis_PutBackEndsByEitherClock(t *testing.T) {
	s := redistest.Start(t)
	for _, test := range []struct {
		name string
		wall time.Duration // between take and put
		ttl  time.Duration
		put  Outcome
		life time.Duration // that is left
	}{
		{"at once", 0, time.Hour, Stored, time.Minute},
		{"after a suspend", 50 * time.Second, time.Hour, Stored, 10 * time.Second},
		{"after a suspend, for less", 50 * time.Second, time.Second, Stored, time.Second},
		{"after a long suspend", time.Hour, time.Hour, Expired, 0},
		{"after a long suspend, for less", time.Hour, time.Second, Expired, 0},
		{"after the clock was set back", -time.Hour, time.Hour, Stored, time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			at, wall := time.Now(), time.Duration(0)
			now := func() time.Time { return clocktest.Apart(t, at, wall) }
			r := openOn(t, s, Config{Now: now, Prefix: freshPrefix()})
			r.OpenBreaker()
			tk := ticket(1, 10)
			wantPut(t, r, key(1), tk, Stored)
			tk = wantTake(t, r, key(1), tk.ID, Taken)
			r.CloseBreaker()
			wall = test.wall
			if _, got := r.Put(t.Context(), key(1), tk, test.ttl); got != test.put {
				t.Fatalf("put: got %v, want %v", got, test.put)
			}
			if test.put != Stored {
				return
			}
			branches := wantLook(t, r, key(1), Found)
			if got, want := branches[0].Deadline, now().Add(test.life); !got.Equal(want.Round(0)) {
				t.Errorf("deadline: got %v, want %v", got, want)
			}
		})
	}
}
