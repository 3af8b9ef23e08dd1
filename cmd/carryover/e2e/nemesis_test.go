package e2e

import (
	"context"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"carryover/convcache/redistest"
)

// Conversations under the nemesis: so that each of its steps meets fifty turns, and twice that in the long form. With hand-backs it is half of
// that.
const (
	nemesisShort, nemesisLong = 100, 300
	nemesisAtOnce             = 6
	nemesisPatience           = 3 * time.Minute // a busy machine misses some of the tests of Redis, which come ever more slowly
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
	t.Parallel()
	underANemesis(t, 11, nemesisConversations())
}

// The same with tickets that are handed back by the replica that has put them, and notes that replicas share.
func TestReplicas_RedisUnderANemesisHandingBack(t *testing.T) {
	t.Parallel()
	f, s := underANemesis(t, 12, nemesisConversations()/2, append([]string{"--routing-prefill", "affinity"}, handBackModes()["idle"]...)...)
	done := f.replicas[0].atPrefill("hand_backs")
	t.Logf("%d hand-backs, %d turns found what came of them", done, s.tally.engine)
	if done == 0 || s.tally.engine == 0 {
		t.Errorf("%d hand-backs, and %d turns that found what came of them: nothing was shown", done, s.tally.engine)
	}
}

// underANemesis holds conversations while the nemesis rages.
func underANemesis(t *testing.T, seed uint64, conversations int, flags ...string) (*replicas, *soak) {
	t.Helper()
	n := newNemesis(t, 3)
	f := startFleet(t, rigConfig{
		cfg:   engineWith(`{"output_token_ids":true,"blocks":65536,"lease":600000000000}`), // hand-overs that nobody reads are counted at the end
		flags: append([]string{"--store-timeout", "500ms"}, flags...),
	}, n.addresses()...)
	s := f.soakOf(seed)
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
	return f, s
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
	noError(t, <-ended)
}

// await waits until so many turns have begun.
func (n *nemesis) await(t *testing.T, turns int, ended <-chan error) {
	t.Helper()
	if !within(nemesisPatience, func() bool { return int(n.taken.Load()) >= turns || len(ended) > 0 }) {
		t.Fatalf("%d of %d turns have begun in %v", n.taken.Load(), turns, nemesisPatience)
	}
}
