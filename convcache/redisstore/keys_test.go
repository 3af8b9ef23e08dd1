package redisstore_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"carryover/convcache"
	"carryover/convcache/redistest"
)

// keysTo returns the keys of the conversations 1 to n.
func keysTo(n int) []Key {
	var keys []Key
	for i := range n {
		keys = append(keys, key(1+i))
	}
	return keys
}

// keys peeks at several keys and compares the outcome, and under which keys branches are shown.
func (r *replica) keys(keys []Key, want Outcome, shown ...Key) {
	r.t.Helper()
	branches, got := r.Peek(context.Background(), keys)
	var under []Key
	for _, b := range branches {
		under = append(under, b.Key)
	}
	if got != want || !slices.Equal(under, shown) {
		r.t.Errorf("peek at %d keys: got %v and branches under %v, want %v and %v", len(keys), got, under, want, shown)
	}
}

func TestRedis_SeveralKeysTakeOneRoundTrip(t *testing.T) {
	s := redistest.Start(t)
	front := redistest.Forward(t, s.Addr())
	r, other := openAt(t, front), openAt(t, s)
	for n := range convcache.MaxKeys {
		other.put(key(1+n), fullTicket(n))
	}
	for n := 1; n <= convcache.MaxKeys; n++ {
		keys := keysTo(n)
		r.keys(keys, Found, keys...) // on a connection that is greeted now
		before := front.RoundTrips()
		said := monitor(t, s, func() { r.keys(keys, Found, keys...) })
		if got := front.RoundTrips() - before; got != 1 {
			t.Errorf("a look-up of %d keys: got %d round trips, want 1", n, got)
		}
		if got, all := strings.Count(said, `"hmget"`), strings.Count(said, "\n"); got != n+1 || all != n+1 {
			t.Errorf("a look-up of %d keys: got %d commands, %d hmget, want %d hmget alone, of which one is for the epoch", n, all, got, n+1)
		}
	}
}

func TestRedis_KeyOfAnotherKindConcernsItsConversationOnly(t *testing.T) {
	s := redistest.Start(t)
	r, a := openAt(t, s), ticket(1, 10)
	s.CLI("SET", r.KeyName(k1), "somebody's")
	r.put(k2, ticket(2, 10))
	for range 8 {
		r.put(k1, a)
		r.shows(k1, a)
		r.take(k1, a)
		r.keys([]Key{k1, k2, k3}, Found, k2)
		r.keys([]Key{k3, k1}, Unavailable)
	}
	if got := s.CLI("GET", r.KeyName(k1)); got != "somebody's" || !r.Shares() {
		t.Errorf("the key of another kind: got %q, want it left alone, and all others shared: %t", got, r.Shares())
	}
}

// Of several keys one is large, and its answer needs too long. Those before it are shown, and the look-up does not count.
func TestRedis_LargeAnswerOfOneKeyHidesNoneBefore(t *testing.T) {
	r, other := narrowRedis(t, 32<<10)
	other.put(k1, ticket(1, 10))
	other.put(k2, longTicket(blocksFrom(false)))
	keys := keysTo(2)
	for range 8 {
		timed(t, granted, func(ctx context.Context) {
			branches, outcome := r.Peek(ctx, keys)
			if outcome == Unavailable && len(branches) == 0 {
				return // a busy machine has needed all of the time before
			}
			if outcome != Found || len(branches) != 1 || branches[0].Key != k1 {
				t.Errorf("peek: got %v and %d branches, want that of the first key", outcome, len(branches))
			}
		})
	}
	wantShared(t, r, other)
}
