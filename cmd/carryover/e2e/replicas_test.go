package e2e

import (
	"cmp"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tidwall/gjson"
	"golang.org/x/sync/errgroup"

	"carryover/cmd/carryover/testrig"
	"carryover/convcache/redistest"
	"carryover/server"
	"carryover/upstream/vllmsim"
)

// replicas is several programs on the same instances, which share their tickets.
type replicas struct {
	replicas []*rig
	seen     []*blockUses
}

// startFleet runs one program per Redis address, behind which there may be one and the same server. One for "" has its tickets in memory.
func startFleet(t *testing.T, cfg vllmsim.Config, redis []string, flags ...string) *replicas {
	t.Helper()
	return startFleetWith(t, cfg, redis, unchanged, flags...)
}

// startFleetWith is startFleet with other parts.
func startFleetWith(t *testing.T, cfg vllmsim.Config, redis []string, replace func(*server.Deps), flags ...string) *replicas {
	t.Helper()
	f := &replicas{}
	c := rigConfig{cfg: cfg, prefills: 2, decodes: 2, env: []string{testrig.ReplicaSecret}}
	for _, address := range redis {
		seen := newUses()
		c.replace = func(deps *server.Deps) {
			replace(deps)
			seen.watch(deps)
		}
		c.flags = slices.Concat(inTurn, []string{"--release", "on"}, flags)
		if address != "" {
			c.flags = append(c.flags, "--redis-url", "redis://"+address)
		}
		r := startRig(t, c)
		c.sharing = cmp.Or(c.sharing, r)
		f.replicas = append(f.replicas, r)
		f.seen = append(f.seen, seen)
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
func (f *replicas) soakOf(t *testing.T, cfg vllmsim.Config, seed uint64) *soak {
	t.Helper()
	first := f.replicas[0]
	return &soak{
		rig: first, fronts: f.replicas, cfg: cfg, uses: f.seen[0], seed: seed, reasons: map[string]int{},
		lone: &rig{base: testrig.StartInstance(t, cfg, "").URL(), client: first.client},
	}
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
	cfg := vllmsim.DefaultConfig()
	cfg.OutputTokenIDs = true
	n := newNemesis(t, 1)
	f := startFleet(t, cfg, n.addresses())
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
	cfg := vllmsim.DefaultConfig()
	cfg.OutputTokenIDs, cfg.Blocks = true, 1<<17
	address := redistest.Start(t).Addr()
	f := startFleet(t, cfg, []string{address, address, address}, "--store-timeout", timeout)
	for i, r := range f.replicas {
		for n := range 3 { // each pair of instances has its trial on each replica
			r.talk(fmt.Sprintf("learning-%d-%d", i, n)).learnt(t)
		}
	}
	var hits, unavailable, broken, other atomic.Int64
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(2)
	for i := range conversations {
		group.Go(func() error {
			id := fmt.Sprintf("follow-up-%d", i)
			h := &history{}
			for turn := range 2 {
				h.messages = append(h.messages, question(fmt.Sprintf("%s %s", id, longText(i+turn))))
				body := encode(object{"model": "sim", "messages": h.messages, "max_tokens": 16, "stream": true, "conversation_id": id})
				a, err := f.replicas[(i+turn)%len(f.replicas)].post(ctx, "/v1/chat/completions", nil, body, unwatched)
				if err != nil {
					return fmt.Errorf("%s: %w", id, err)
				}
				if a.status != http.StatusOK || a.ends != endsDone {
					return fmt.Errorf("%s: status %d, answer ends %s: %.300s", id, a.status, a.ends, a.raw)
				}
				h.messages = append(h.messages, a.assistant())
				if turn == 0 {
					continue
				}
				switch reuse := noHit(a.reuse()); {
				case strings.HasPrefix(reuse, "hit;"):
					hits.Add(1)
				case reuse == "miss;reason=store_unavailable":
					unavailable.Add(1)
				case reuse == "miss;reason=retried_without_ticket" && conversations == followUpShort:
					broken.Add(1) // as in TestTwoHundredConversations
				default:
					other.Add(1)
					t.Logf("%s: %s", id, reuse)
				}
			}
			return nil
		})
	}
	noError(t, group.Wait())
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
