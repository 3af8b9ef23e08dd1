package redisstore_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"

	"carryover/convcache"
	"carryover/convcache/redisstore"
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

// wantKeys peeks at several keys and compares the outcome, and under which keys branches are shown.
func wantKeys(t *testing.T, r *replica, keys []Key, want Outcome, shown ...Key) {
	t.Helper()
	branches, got := r.Peek(context.Background(), keys)
	var under []Key
	for _, b := range branches {
		under = append(under, b.Key)
	}
	if got != want || !slices.Equal(under, shown) {
		t.Errorf("peek at %d keys: got %v and branches under %v, want %v and %v", len(keys), got, under, want, shown)
	}
}

func TestRedis_SeveralKeysTakeOneRoundTrip(t *testing.T) {
	s := redistest.Start(t)
	front := redistest.Forward(t, s.Addr())
	r, other := openAt(t, front.Addr()), openAt(t, s.Addr())
	for n := range convcache.MaxKeys {
		wantPut(t, other, key(1+n), fullTicket(n), Stored)
	}
	for n := 1; n <= convcache.MaxKeys; n++ {
		keys := keysTo(n)
		wantKeys(t, r, keys, Found, keys...) // on a connection that is greeted now
		before := front.RoundTrips()
		said := monitor(t, s, func() { wantKeys(t, r, keys, Found, keys...) })
		if got := front.RoundTrips() - before; got != 1 {
			t.Errorf("a look-up of %d keys: got %d round trips, want 1", n, got)
		}
		if got, all := strings.Count(said, `"hmget"`), strings.Count(said, "\n"); got != n+1 || all != n+1 {
			t.Errorf("a look-up of %d keys: got %d commands, %d hmget, want %d hmget alone, of which one is for the epoch", n, all, got, n+1)
		}
	}
}

func TestRedis_SeveralKeysAreReadFromTheirMasters(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartCluster(t, 3)
	r := openRedis(t, Config{Topology: redisstore.Cluster, Addresses: nodes.Addrs(), Prefix: "spread"})
	mustCheck(t, r)
	for n := range 3 * convcache.MaxKeys {
		wantPut(t, r, key(1+n), ticket(n, 10), Stored)
	}
	asked := func() (counts []int) {
		for _, node := range nodes.Nodes {
			counts = append(counts, calls(node, "hmget"))
		}
		return counts
	}
	before := asked()
	all := keysTo(3 * convcache.MaxKeys)
	for keys := range slices.Chunk(all, convcache.MaxKeys) {
		wantKeys(t, r, keys, Found, keys...)
	}
	total := 0
	for i, got := range asked() {
		if got == before[i] {
			t.Errorf("node %d was asked nothing", i)
		}
		total += got - before[i]
	}
	if total != len(all)+len(all)/convcache.MaxKeys {
		t.Errorf("masters were asked %d times for %d keys and the epoch of each look-up", total, len(all))
	}

	for _, node := range nodes.Nodes {
		node.CLI("CONFIG", "SET", "cluster-require-full-coverage", "no")
	}
	nodes.Nodes[0].Kill() // it had the first third of the slots
	lost := func(k Key) bool {
		slot, err := strconv.Atoi(nodes.Nodes[1].CLI("CLUSTER", "KEYSLOT", r.KeyName(k)))
		return err == nil && slot < 16384/3
	}
	for keys := range slices.Chunk(all, convcache.MaxKeys) { // fewer look-ups than open the breaker
		there := slices.DeleteFunc(slices.Clone(keys), lost)
		if len(there) == 0 {
			wantKeys(t, r, keys, Unavailable)
			continue
		}
		wantKeys(t, r, keys, Found, there...)
	}
}

func TestRedis_KeyOfAnotherKindConcernsItsConversationOnly(t *testing.T) {
	st := newStage(t, Config{})
	s, r := st.server, st.stores["r"]
	st.play("occupy 1; put other 2")
	for range 8 {
		st.play("put a; look a; take a")
		wantKeys(t, r, []Key{key(1), key(2), key(3)}, Found, key(2))
		wantKeys(t, r, []Key{key(3), key(1)}, Unavailable)
	}
	st.play("shares") // all others
	if got := s.CLI("GET", r.KeyName(key(1))); got != "somebody's" {
		t.Errorf("the key of another kind: got %q, want it left alone", got)
	}
}

func TestRedis_LookUpOfSeveralKeysIsOneFailure(t *testing.T) {
	s, r := startRedis(t)
	mustCheck(t, r)
	s.Kill()
	for n := range 5 {
		if !r.Shares() {
			t.Fatalf("the breaker opened after %d failures", n)
		}
		wantKeys(t, r, keysTo(convcache.MaxKeys), Unavailable)
	}
	if r.Shares() {
		t.Error("five look-ups failed, and more are sent")
	}
}

// Of several keys one is large, and its answer needs too long. Those before it are shown, and the look-up does not count.
func TestRedis_LargeAnswerOfOneKeyHidesNoneBefore(t *testing.T) {
	r, other := narrowRedis(t, 32<<10)
	wantPut(t, other, key(1), ticket(1, 10), Stored)
	wantPut(t, other, key(2), longTicket(t, blocksFrom(false)), Stored)
	keys := keysTo(2)
	for range 8 {
		timed(t, granted, func(ctx context.Context) {
			branches, outcome := r.Peek(ctx, keys)
			if outcome == Unavailable && len(branches) == 0 {
				return // a busy machine has needed all of the time before
			}
			if outcome != Found || len(branches) != 1 || branches[0].Key != key(1) {
				t.Errorf("peek: got %v and %d branches, want that of the first key", outcome, len(branches))
			}
		})
	}
	wantShared(t, r, other)
}
