package convcache

import (
	"testing"
	"time"

	"carryover/convcache/clocktest"
)

// twoClocks is a clock whose two readings are moved apart.
type twoClocks struct {
	t    *testing.T
	at   time.Time // with a monotonic reading
	wall time.Duration
}

func (c *twoClocks) now() time.Time { return clocktest.Apart(c.t, c.at, c.wall) }

// Each row moves the clocks after a put for a minute.
func TestMemory_TicketsEndByEitherClock(t *testing.T) {
	for _, test := range []struct {
		name       string
		both, wall time.Duration
		look, take Outcome
		evicted    int
	}{
		{name: "nothing has happened", look: Found, take: Taken},
		{name: "nearly a minute", both: time.Minute - 1, look: Found, take: Taken},
		{name: "a minute", both: time.Minute, look: Expired, take: Expired, evicted: 1},
		{name: "nearly a minute of suspend", wall: time.Minute - 1, look: Found, take: Taken},
		{name: "a minute of suspend", wall: time.Minute, look: Expired, take: Expired, evicted: 1},
		{name: "half a minute and one of suspend", both: 30 * time.Second, wall: 30 * time.Second, look: Expired, take: Expired, evicted: 1},
		{name: "set back for nearly a minute", both: time.Minute - 1, wall: -time.Hour, look: Found, take: Taken},
		{name: "set back for a minute", both: time.Minute, wall: -time.Hour, look: Expired, take: Expired, evicted: 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := &twoClocks{t: t, at: time.Now()}
			m := NewMemory(MemoryConfig{Now: c.now})
			taken, left := ticket(1, 10), ticket(2, 10)
			mustPut(t, m, key(1), taken, time.Minute)
			mustPut(t, m, key(2), left, time.Minute)
			c.at, c.wall = c.at.Add(test.both), test.wall
			wantPeek(t, m, key(1), test.look)
			if _, got := m.Take(t.Context(), key(1), taken.ID); got != test.take {
				t.Errorf("take: got %v, want %v", got, test.take)
			}
			if got := m.EvictStale(); got != test.evicted {
				t.Errorf("evicted: got %d, want %d", got, test.evicted)
			}
		})
	}
}

// A ticket that is put back may be usable for as long as before by neither clock, whatever time it is granted.
func TestMemory_PutBackEndsByEitherClock(t *testing.T) {
	for _, test := range []struct {
		name       string
		both, wall time.Duration // between take and put
		put        Outcome
		life       time.Duration // that is left
	}{
		{name: "at once", put: Stored, life: time.Minute},
		{name: "after a while", both: 20 * time.Second, put: Stored, life: 40 * time.Second},
		{name: "after a suspend", wall: 50 * time.Second, put: Stored, life: 10 * time.Second},
		{name: "after a long suspend", wall: time.Hour, put: Expired},
		{name: "after the clock was set back", both: 20 * time.Second, wall: -time.Hour, put: Stored, life: 40 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, ttl := range []time.Duration{time.Second, 30 * time.Second, time.Minute, 2 * time.Hour} {
				c := &twoClocks{t: t, at: time.Now()}
				m := NewMemory(MemoryConfig{Now: c.now})
				tk := ticket(1, 10)
				mustPut(t, m, key(1), tk, time.Minute)
				tk, _ = m.Take(t.Context(), key(1), tk.ID)
				c.at, c.wall = c.at.Add(test.both), test.wall
				if _, got := m.Put(t.Context(), key(1), tk, ttl); got != test.put {
					t.Errorf("put for %v: got %v, want %v", ttl, got, test.put)
				}
				if test.put != Stored {
					continue
				}
				life := min(ttl, test.life)
				c.at = c.at.Add(life - 1)
				wantPeek(t, m, key(1), Found)
				c.at = c.at.Add(1)
				wantPeek(t, m, key(1), Expired)
			}
		})
	}
}
