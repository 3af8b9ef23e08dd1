package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"carryover/convcache/redistest"
	"carryover/server"
	"carryover/upstream/vllmsim"
)

// replicaSecret is what the replicas of a test share.
const replicaSecret = "CARRYOVER_SECRET=of all replicas, 32 bytes long!!"

// replicas is several programs on the same instances, which share their tickets.
type replicas struct {
	replicas []*rig
	seen     []*blockUses
}

// startFleet runs one program per Redis address, behind which there may be one and the same server.
func startFleet(t *testing.T, cfg vllmsim.Config, redis []string, flags ...string) *replicas {
	t.Helper()
	f := &replicas{}
	c := rigConfig{prefill: []vllmsim.Config{cfg, cfg}, decode: []vllmsim.Config{cfg, cfg}, env: []string{replicaSecret}}
	for _, address := range redis {
		seen := &blockUses{named: map[string]int{}}
		c.replace = func(deps *server.Deps) { seen.Legs, deps.Legs = deps.Legs, seen }
		c.flags = slices.Concat([]string{
			"--routing-prefill", "round_robin", "--routing-decode", "round_robin", "--release", "on",
			"--reuse-trial-timeout", "25s", "--redis-url", "redis://" + address,
		}, flags)
		if len(f.replicas) > 0 {
			for _, instance := range f.replicas[0].prefill {
				c.flags = append(c.flags, "--prefill", instance.URL())
			}
			for _, instance := range f.replicas[0].decode {
				c.flags = append(c.flags, "--decode", instance.URL())
			}
			c.prefill, c.decode = nil, nil
		}
		f.replicas = append(f.replicas, startRig(t, c))
		f.seen = append(f.seen, seen)
	}
	return f
}

// verify ends all replicas and asserts that nothing was read wrongly or twice, and that no two legs of any
// of them named the same answer's blocks.
func (f *replicas) verify(t *testing.T) {
	t.Helper()
	own := 0
	named := map[string]int{}
	for i, r := range f.replicas {
		r.stop()
		own += f.seen[i].own
		for id, n := range f.seen[i].named {
			named[id] += n
		}
	}
	for id, n := range named {
		if n > 1 {
			t.Errorf("the blocks of %s were named by %d legs, want one", id, n)
		}
	}
	f.replicas[0].verifyReads(t, own)
	for _, r := range f.replicas[1:] {
		for _, message := range r.turns.panics() {
			t.Errorf("log: %s", message)
		}
	}
}

// soakOf makes the replicas the front of random conversations, whose answers are compared with those of a lone
// instance.
func (f *replicas) soakOf(t *testing.T, cfg vllmsim.Config, seed uint64) *soak {
	t.Helper()
	first := f.replicas[0]
	return &soak{
		rig: first, fronts: f.replicas, cfg: cfg, uses: f.seen[0], seed: seed, reasons: map[string]int{},
		lone: &rig{base: startInstance(t, cfg, "").URL(), client: first.client},
	}
}

// Conversations under the nemesis: so that each of its steps meets fifty turns, and twice that in the long form.
const (
	nemesisShort, nemesisLong = 150, 300
	nemesisAtOnce             = 6
	nemesisPatience           = time.Minute
)

func nemesisConversations() int {
	if os.Getenv(followUpVariable) != "" {
		return nemesisLong
	}
	return nemesisShort
}

// Tickets that replicas share, while what they share them through is stopped, killed, emptied, split and
// failed over: no answer is wrong, no block is read twice, and no request fails.
func TestReplicas_RedisUnderANemesis(t *testing.T) {
	cfg := vllmsim.DefaultConfig()
	cfg.OutputTokenIDs, cfg.Blocks = true, 1<<16
	cfg.Lease = 10 * time.Minute // hand-overs that nobody reads are counted at the end
	conversations := nemesisConversations()
	n := newNemesis(t, 3)
	f := startFleet(t, cfg, n.addresses(), "--store-timeout", "100ms")
	s := f.soakOf(t, cfg, 11)
	s.permit = n.permit
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(nemesisAtOnce)
	ended := make(chan error, 1) // one result, read once
	go func() {
		for i := range conversations {
			group.Go(func() error { return s.converse(ctx, newTalk(s.seed, i), true) })
		}
		ended <- group.Wait()
	}()
	n.rage(t, f, conversations*soakTurns, ended)
	k := s.tally
	t.Logf("%d later turns, %d hits, misses %v", k.turns, k.hits, s.reasons)
	if k.hits*4 < k.turns {
		t.Errorf("%d hits in %d later turns: too few for the test to mean anything", k.hits, k.turns)
	}
	if s.reasons["store_unavailable"] == 0 {
		t.Error("no turn noticed the nemesis")
	}
	f.verify(t)
}

// nemesis is a master and a replica of it, and one way to either for each of our replicas. Turns go on by its
// permits, so that each of its steps meets its share of them.
type nemesis struct {
	master, replica *redistest.Server
	ways            []*redistest.Forwarder
	permits         chan struct{}
	taken           atomic.Int64
}

func newNemesis(t *testing.T, replicas int) *nemesis {
	t.Helper()
	n := &nemesis{
		master: redistest.Start(t), replica: redistest.Start(t),
		permits: make(chan struct{}, nemesisLong*soakTurns), // all of them fit
	}
	n.replica.ReplicaOf(n.master)
	for range replicas {
		n.ways = append(n.ways, redistest.Forward(t, n.master.Addr()))
	}
	return n
}

func (n *nemesis) addresses() (all []string) {
	for _, way := range n.ways {
		all = append(all, way.Addr())
	}
	return all
}

// permit waits until another turn may begin.
func (n *nemesis) permit(ctx context.Context) error {
	select {
	case <-n.permits:
		n.taken.Add(1)
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// outrage is what a nemesis does while turns go on, and how it ends that.
type outrage struct {
	name       string
	begin, end func()
}

// garble replaces every other conversation by something else, and parts of the tickets of the rest.
const garble = `for i, key in ipairs(redis.call('KEYS', '*')) do
  if i % 2 == 0 then redis.call('SET', key, 'garbage') else redis.call('HSET', key, '0b', 'garbage', '1i', 'garbage', '1p', 'garbage') end
end`

func (n *nemesis) steps() []outrage {
	nothing := func() {}
	a, b := n.master, n.replica
	return []outrage{
		{"calm", nothing, nothing},
		{"answers of one way are lost", func() { n.ways[0].CutReplies(true) }, func() { n.ways[0].CutReplies(false) }},
		{"the master is stopped", a.Stop, a.Continue},
		{"all is forgotten", func() { a.CLI("FLUSHALL") }, nothing},
		{"all is garbage", func() { a.CLI("EVAL", garble, "0") }, nothing},
		{"the master is full", func() { a.CLI("CONFIG", "SET", "maxmemory", "1") }, func() { a.CLI("CONFIG", "SET", "maxmemory", "0") }},
		{"the master is a replica", func() { b.Promote(); a.ReplicaOf(b) }, func() { a.Promote(); b.ReplicaOf(a) }},
		{"the master is killed and starts empty", a.Kill, func() { a.Restart(); b.ReplicaOf(a) }},
		{"one way hangs", func() { n.ways[1].Hang(true) }, func() { n.ways[1].Hang(false) }},
		{"two masters", func() { b.Promote(); n.ways[2].Target(b.Addr()) }, nothing},
		{"the old one follows", func() { n.ways[0].Target(b.Addr()); n.ways[1].Target(b.Addr()); a.ReplicaOf(b) }, nothing},
		{"fail-back, for a time with two masters", func() { a.Promote(); n.ways[0].Target(a.Addr()) }, func() {
			n.ways[1].Target(a.Addr())
			n.ways[2].Target(a.Addr())
			b.ReplicaOf(a)
		}},
		{"the master is killed and starts from a file", func() { a.CLI("SAVE") }, func() { a.Kill(); a.Restart(); b.ReplicaOf(a) }},
		{"calm again", nothing, nothing},
	}
}

// rage takes one step after the other: begins it when a third of its share of the turns has begun, and ends it
// when two thirds have.
func (n *nemesis) rage(t *testing.T, f *replicas, turns int, ended <-chan error) {
	t.Helper()
	steps := n.steps()
	share := turns / len(steps)
	for range turns - share*len(steps) {
		n.permits <- struct{}{}
	}
	for i, step := range steps {
		f.awaitRedis(t)
		for range share {
			n.permits <- struct{}{}
		}
		n.await(t, i*share+share/3, ended)
		step.begin()
		n.await(t, i*share+2*share/3, ended)
		step.end()
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// await waits until so many turns have begun.
func (n *nemesis) await(t *testing.T, turns int, ended <-chan error) {
	t.Helper()
	if !within(nemesisPatience, func() bool { return int(n.taken.Load()) >= turns || len(ended) > 0 }) {
		t.Fatalf("%d of %d turns have begun in %v", n.taken.Load(), turns, nemesisPatience)
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
	var ready struct{ Redis string }
	if err := json.Unmarshal([]byte(body), &ready); err != nil {
		t.Fatal(err)
	}
	return ready.Redis
}

// A failover costs each conversation one miss, which says so.
func TestReplicas_FailoverIsNamed(t *testing.T) {
	cfg := vllmsim.DefaultConfig()
	cfg.OutputTokenIDs = true
	n := newNemesis(t, 1)
	f := startFleet(t, cfg, n.addresses())
	c := &chatting{rig: f.replicas[0], id: "failover", cfg: cfg}
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
			(&chatting{rig: r, id: fmt.Sprintf("learning-%d-%d", i, n), cfg: cfg}).learnt(t)
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
				body := encode(map[string]any{"model": "sim", "messages": h.messages, "max_tokens": 16, "stream": true, "conversation_id": id})
				a, err := f.replicas[(i+turn)%len(f.replicas)].post(ctx, "/v1/chat/completions", http.Header{}, body, unwatched)
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
				switch reuse := a.reuse(); {
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
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
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
