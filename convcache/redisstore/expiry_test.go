package redisstore_test

import (
	"testing"
	"time"

	"carryover/convcache"
	"carryover/convcache/clocktest"
	"carryover/convcache/redistest"
)

// Expiry by the server's clock; the store's own stands.
func TestRedis_ExpiresByServerClock(t *testing.T) {
	_, r := startRedis(t)
	short, long := fullTicket(1), fullTicket(2)
	const life = 500 * time.Millisecond // of the short one: two puts on a busy machine
	for order, tickets := range [][2]Ticket{{short, long}, {long, short}} {
		k := key(order)
		for _, tk := range tickets {
			ttl := redisTTL
			if tk.ID == short.ID {
				ttl = life
			}
			if _, got := r.Put(t.Context(), k, tk, ttl); got != Stored {
				t.Fatalf("put: got %v, want %v", got, Stored)
			}
		}
		put, err := r.Client().Time(t.Context()).Result()
		must(t, err)
		eventually(t, "the server's clock", func() bool {
			now, err := r.Client().Time(t.Context()).Result()
			return err == nil && now.Sub(put) > life+time.Millisecond
		})
		if got := len(wantLook(t, r, k, Found)); got != 2 {
			t.Errorf("peek: got %d branches, want 2: by the clock that stands both are usable", got)
		}
		if order == 1 { // one that supersedes it gets nothing to release
			newer := short
			newer.ID = convcache.NewTicketID()
			if got := wantPut(t, r, k, newer, Stored); len(got) != 0 {
				t.Errorf("put: got %d displaced, want none: it has expired", len(got))
			}
			wantTake(t, r, k, short.ID, Consumed)
			continue
		}
		wantTake(t, r, k, short.ID, Expired)
		wantTake(t, r, k, short.ID, Consumed)
		wantTake(t, r, k, long.ID, Taken)
	}
}

func TestRedis_KeyExpiresByItself(t *testing.T) {
	_, r := startRedis(t)
	tk := ticket(1, 10)
	if _, got := r.Put(t.Context(), key(1), tk, 30*time.Millisecond); got != Stored {
		t.Fatalf("put: got %v, want %v", got, Stored)
	}
	eventually(t, "a key that is gone", func() bool {
		n, err := r.Client().Exists(t.Context(), r.KeyName(key(1))).Result()
		return err == nil && n == 0
	})
	wantLook(t, r, key(1), Empty)
	wantTake(t, r, key(1), tk.ID, Consumed)

	for name, lives := range map[string][]time.Duration{
		"longest last": {time.Second, time.Hour}, "longest first": {time.Hour, time.Second}, "longest between": {time.Second, time.Hour, time.Minute},
	} {
		k := key(len(name))
		for n, life := range lives {
			if _, got := r.Put(t.Context(), k, ticket(n, 10), life); got != Stored {
				t.Fatalf("%s: put: got %v, want %v", name, got, Stored)
			}
		}
		left, err := r.Client().PTTL(t.Context(), r.KeyName(k)).Result()
		if err != nil || left > time.Hour || left < time.Hour-time.Minute {
			t.Errorf("%s: the key lives for %v (error %v), want the hour of its longest ticket", name, left, err)
		}
	}
}

// Servers count in whole milliseconds.
func TestRedis_LessThanAMillisecondIsNone(t *testing.T) {
	s, r := startRedis(t)
	said := monitor(t, s, func() {
		if displaced, got := r.Put(t.Context(), key(1), ticket(1, 10), time.Millisecond-1); got != Expired || displaced != nil {
			t.Errorf("put: got %v and %d displaced, want %v and none", got, len(displaced), Expired)
		}
	})
	if said != "" {
		t.Errorf("the server was told %q", said)
	}
}

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
		{"after a long suspend", time.Hour, time.Hour, Expired, 0},
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
