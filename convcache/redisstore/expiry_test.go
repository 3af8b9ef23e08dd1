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
	r := openAt(t, redistest.Start(t))
	for order, lives := range [][]time.Duration{{time.Second / 2, redisTTL}, {redisTTL, time.Second / 2}} { // two puts on a busy machine
		k, tickets := key(order), []Ticket{fullTicket(1), fullTicket(2)}
		for i, tk := range tickets {
			r.putFor(lives[i], k, tk)
		}
		clock := func() time.Time {
			now, err := r.Client().Time(t.Context()).Result()
			must(t, err)
			return now
		}
		put := clock()
		eventually(t, "the server's clock", func() bool { return clock().Sub(put) > time.Second/2+time.Millisecond })
		if got := len(r.look(k)); got != 2 {
			t.Errorf("peek: got %d branches, want 2: by the clock that stands both are usable", got)
		}
		short := tickets[order]
		if order == 0 {
			r.take(k, short, Expired)
			r.take(k, tickets[1])
		} else { // one that supersedes it gets nothing to release
			newer := short
			newer.ID = convcache.NewTicketID()
			if got := r.put(k, newer); len(got) != 0 {
				t.Errorf("put: got %d displaced, want none: it has expired", len(got))
			}
		}
		r.take(k, short, Consumed)
	}
}

func TestRedis_KeyExpiresByItself(t *testing.T) {
	r := openAt(t, redistest.Start(t))
	r.putFor(30*time.Millisecond, k1, ticket(1, 10))
	eventually(t, "a key that is gone", func() bool { return r.Client().Exists(t.Context(), r.KeyName(k1)).Val() == 0 })
	r.look(k1, Empty)
	for n, lives := range [][]time.Duration{{time.Second, time.Hour}, {time.Hour, time.Second}, {time.Hour, time.Second, time.Minute}} {
		k := key(n)
		for i, life := range lives {
			r.putFor(life, k, ticket(i, 10))
		}
		left, err := r.Client().PTTL(t.Context(), r.KeyName(k)).Result()
		if err != nil || left > time.Hour || left < time.Hour-time.Minute {
			t.Errorf("%v: the key lives for %v (error %v), want the hour of its longest ticket", lives, left, err)
		}
	}
}

// Servers count in whole milliseconds.
func TestRedis_LessThanAMillisecondIsNone(t *testing.T) {
	s := redistest.Start(t)
	r := openAt(t, s)
	quiet(t, s, func() { r.putFor(time.Millisecond-1, k1, ticket(1, 10), Expired) })
}

// A ticket from this process' memory that goes to Redis: what is stored there has a wall reading only.
func TestRedis_PutBackEndsByEitherClock(t *testing.T) {
	s := redistest.Start(t)
	for between, left := range map[time.Duration]time.Duration{ // of the wall clock from take to put, and of the ticket then
		0: time.Minute, 50 * time.Second: 10 * time.Second, time.Hour: 0, -time.Hour: time.Minute,
	} {
		at, wall := time.Now(), time.Duration(0)
		now := func() time.Time { return clocktest.Apart(t, at, wall) }
		r := openAt(t, s, Config{Now: now, Prefix: freshPrefix()})
		r.OpenBreaker()
		tk := ticket(1, 10)
		r.put(k1, tk)
		tk = r.take(k1, tk)
		r.CloseBreaker()
		if wall = between; left == 0 {
			r.putFor(time.Hour, k1, tk, Expired)
			continue
		}
		r.putFor(time.Hour, k1, tk)
		if got, want := r.look(k1)[0].Deadline, now().Add(left); !got.Equal(want.Round(0)) {
			t.Errorf("%v between: deadline: got %v, want %v", between, got, want)
		}
	}
}
