package e2e

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tidwall/gjson"

	"carryover/convcache/redistest"
	"carryover/server"
)

// replicas is several programs on the same instances, which share their tickets.
type replicas struct {
	replicas []*rig
	seen     []*blockUses
}

// startFleet runs one program per Redis address, behind which there may be one and the same server. One for "" has its tickets in memory.
func startFleet(t *testing.T, c rigConfig, redis ...string) *replicas {
	t.Helper()
	f, replace := &replicas{}, c.replace
	c.prefills, c.decodes, c.alone, c.flags = 2, 2, true, slices.Concat(inTurn, []string{"--release", "on"}, c.flags)
	for _, address := range redis {
		seen := newUses()
		c.redis, c.replace = address, func(deps *server.Deps) {
			if replace != nil {
				replace(deps)
			}
			seen.watch(deps)
		}
		r := startRig(t, c)
		c.sharing = cmp.Or(c.sharing, r)
		f.replicas, f.seen = append(f.replicas, r), append(f.seen, seen)
	}
	return f
}

// verify ends all replicas and asserts that nothing was read wrongly or twice, and that no two legs of any
// of them named the same answer's blocks.
func (f *replicas) verify(t *testing.T) {
	t.Helper()
	named := map[string]int{}
	for i, r := range f.replicas {
		r.stop()
		for id, n := range f.seen[i].named {
			named[id] += n
		}
	}
	for id, n := range named {
		if n > 1 {
			t.Errorf("the blocks of %s were named by %d legs, want one", id, n)
		}
	}
	f.replicas[0].verifyReads(t)
	for _, r := range f.replicas[1:] {
		r.saidNothing(t)
	}
}

// soakOf makes the replicas the front of random conversations, whose answers are compared with those of a lone
// instance.
func (f *replicas) soakOf(seed uint64) *soak {
	return &soak{rig: f.replicas[0], fronts: f.replicas, seed: seed}
}

// awaitRedis waits until every replica shares its tickets.
func (f *replicas) awaitRedis(t *testing.T) {
	t.Helper()
	for i, r := range f.replicas {
		var state string
		if !within(nemesisPatience, func() bool { state = r.redisState(t); return state == server.RedisUp }) {
			t.Fatalf("replica %d: redis is %q after %v", i, state, nemesisPatience)
		}
	}
}

// redisState is what /readyz says of Redis.
func (r *rig) redisState(t *testing.T) string {
	t.Helper()
	_, body := r.get(t, r.base+"/readyz")
	return gjson.Get(body, "redis").String()
}

// A failover costs each conversation one miss, which says so.
func TestReplicas_FailoverIsNamed(t *testing.T) {
	n := newNemesis(t, 1)
	f := startFleet(t, rigConfig{cfg: engineWith(`{"output_token_ids":true}`)}, n.addresses()...)
	c := f.replicas[0].talk("failover")
	c.learnt(t)
	n.replica.ReplicaOf(n.master) // has all by now
	n.replica.Promote()
	n.ways[0].Target(n.replica.Addr())
	c.want(t, "miss;reason=store_failed_over")
	c.want(t, "hit;")
	f.verify(t)
}

// followUpVariable is the number of conversations of the test of immediate follow-ups, 5,000 in the long form; with it
// the nemesis has its long form too.
const followUpVariable = "CARRYOVER_FOLLOW_UPS"

const followUpShort = 150

// The next turn comes with the last byte of the one before, to another replica, and finds its ticket.
func TestReplicas_ImmediateFollowUp(t *testing.T) {
	conversations, timeout := followUpShort, "5s"
	if set := os.Getenv(followUpVariable); set != "" {
		var err error
		if conversations, err = strconv.Atoi(set); err != nil {
			t.Fatalf("%s: %v", followUpVariable, err)
		}
		timeout = "5ms" // what is served with
	}
	address := redistest.Start(t).Addr()
	f := startFleet(t, rigConfig{cfg: engineWith(`{"output_token_ids":true,"blocks":131072}`), flags: []string{"--store-timeout", timeout}}, address, address, address)
	for i, r := range f.replicas {
		for n := range 3 { // each pair of instances has its trial on each replica
			r.talk(fmt.Sprintf("learning-%d-%d", i, n)).learnt(t)
		}
	}
	var hits, unavailable, broken, other atomic.Int64
	severally(t, 2, conversations, func(ctx context.Context, i int) error {
		front := func(turn int) *rig { return f.replicas[(i+turn)%len(f.replicas)] }
		return streamed(ctx, fmt.Sprint("follow-up-", i), front, func(turn int, a *answered) (bool, error) {
			switch reuse := noHit(a.reuse()); {
			case turn == 1:
				return true, nil
			case strings.HasPrefix(reuse, "hit;"):
				hits.Add(1)
			case reuse == "miss;reason=store_unavailable":
				unavailable.Add(1)
			case reuse == "miss;reason=retried_without_ticket" && conversations == followUpShort:
				broken.Add(1) // as in TestTwoHundredConversations
			default:
				other.Add(1)
				t.Logf("%d: %s", i, reuse)
			}
			return false, nil
		})
	})
	t.Logf("%d follow-ups: %d hits, %d misses because the store took longer than %s, %d others",
		conversations, hits.Load(), unavailable.Load(), timeout, other.Load())
	if n := other.Load(); n*1000 > int64(conversations) {
		t.Errorf("misses for other reasons than the store: got %d of %d, want 0.1 %% at most", n, conversations)
	}
	if n := hits.Load() + unavailable.Load() + broken.Load(); n < int64(conversations)*999/1000 || broken.Load() > brokenConnections {
		t.Errorf("hits: got %d of %d; %d turns lost a connection", hits.Load(), conversations, broken.Load())
	}
	f.verify(t)
}
