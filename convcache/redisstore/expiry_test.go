package redisstore_test

import (
	"testing"
	"time"

	"carryover/convcache/redistest"
)

// One that supersedes what has expired by the server's clock gets nothing to release, though by the store's own, which stands, it is usable.
func TestRedis_ExpiresByServerClock(t *testing.T) {
	r := openAt(t, redistest.Start(t))
	short, newer := fullTicket(1), fullTicket(1)
	r.putFor(30*time.Millisecond, k1, short)
	r.put(k1, fullTicket(2))
	end := r.Client().Time(t.Context()).Val().Add(31 * time.Millisecond)
	eventually(t, "the server's clock", func() bool { return r.Client().Time(t.Context()).Val().After(end) })
	if got := r.put(k1, newer); len(got) != 0 {
		t.Errorf("put: got %d displaced, want none: it has expired", len(got))
	}
	r.take(k1, short, Consumed)
}

func TestRedis_KeyExpiresByItself(t *testing.T) {
	r := openAt(t, redistest.Start(t))
	r.putFor(30*time.Millisecond, k1, ticket(1, 10))
	eventually(t, "a key that is gone", func() bool { return r.Client().Exists(t.Context(), r.KeyName(k1)).Val() == 0 })
	r.look(k1, Empty)
	for n, lives := range [][]time.Duration{{time.Second, time.Hour}, {time.Hour, time.Second}, {time.Hour, time.Second, time.Minute}} {
		k := key(n)
		for i, life := range lives {
			tk := ticket(i, 10)
			if n == 0 {
				tk = noteOf(tk)
			}
			r.putFor(life, k, tk)
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
