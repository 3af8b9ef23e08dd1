package redisstore_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"carryover/convcache/redisstore"
	"carryover/convcache/redistest"
)

// limits are the options of a client that decide how often and how long it tries, as it has them after its own
// defaults were filled in.
type limits struct {
	maxRetries, dialerRetries, poolSize, maxActive, minIdle, pipelinePool int
	read, write, dial, pool                                               time.Duration
	byContext, anonymous                                                  bool
	notifications                                                         maintnotifications.Mode
}

// limitsOf returns those of a client of one server.
func limitsOf(c *redis.Client) limits {
	o := c.Options()
	return limits{
		o.MaxRetries, o.DialerRetries, o.PoolSize, o.MaxActiveConns, o.MinIdleConns, o.PipelinePoolSize,
		o.ReadTimeout, o.WriteTimeout, o.DialTimeout, o.PoolTimeout,
		o.ContextTimeoutEnabled, o.DisableIdentity, o.MaintNotificationsConfig.Mode,
	}
}

// wantLimits are those that the store asks for; wait is the longer of 20 ms and Timeout.
func wantLimits(timeout, wait time.Duration) limits {
	return limits{
		0, 1, 64, 128, 4, -1, wait, wait, 250 * time.Millisecond, timeout, true, true, maintnotifications.ModeDisabled,
	}
}

func TestRedis_ClientHasItsLimits(t *testing.T) {
	const timeout = 5 * time.Millisecond
	for name, cfg := range map[string]Config{
		"single":   {Addresses: []string{"127.0.0.1:1"}},
		"sentinel": {Topology: redisstore.Sentinel, Addresses: []string{"127.0.0.1:1", "127.0.0.1:2"}, Master: "m"},
	} {
		cfg.Timeout = timeout
		client, ok := openRedis(t, cfg).Client().(*redis.Client)
		if !ok {
			t.Fatalf("%s: the client is a %T", name, openRedis(t, cfg).Client())
		}
		if got, want := limitsOf(client), wantLimits(timeout, 20*time.Millisecond); got != want {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
	cfg := Config{Addresses: []string{"127.0.0.1:1"}, Timeout: time.Second}
	client := openRedis(t, cfg).Client().(*redis.Client)
	if got, want := limitsOf(client), wantLimits(time.Second, time.Second); got != want {
		t.Errorf("a patient one: got %+v, want %+v", got, want)
	}
}

// The clients of a Cluster's masters are made only when it answers.
func TestRedis_ClientsOfAClusterHaveTheirLimits(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartCluster(t, 3)
	cfg := Config{Topology: redisstore.Cluster, Addresses: nodes.Addrs(), Timeout: time.Second}
	cluster, ok := openRedis(t, cfg).Client().(*redis.ClusterClient)
	if !ok {
		t.Fatalf("the client is a %T", openRedis(t, cfg).Client())
	}
	if got := cluster.Options().MaxRedirects; got != 0 {
		t.Errorf("max redirects: got %d, want 0", got)
	}
	var seen atomic.Int64 // masters are asked at the same time
	err := cluster.ForEachMaster(t.Context(), func(_ context.Context, c *redis.Client) error {
		seen.Add(1)
		if got, want := limitsOf(c), wantLimits(time.Second, time.Second); got != want {
			t.Errorf("master %s: got %+v, want %+v", c.Options().Addr, got, want)
		}
		return nil
	})
	if err != nil || seen.Load() != 3 {
		t.Errorf("ask masters: %d seen, want 3, error %v", seen.Load(), err)
	}
	t.Run("a lost answer is not asked for again", func(t *testing.T) { clusterSendsOnce(t, nodes) })
	t.Run("a moved slot is found again", func(t *testing.T) { clusterFollowsSlot(t, nodes) })
	t.Run("a dead master spoils its own conversations only", func(t *testing.T) { clusterLosesMaster(t, nodes) })
}

// greet has a client's pool hand out connections that the server has greeted, so that a command which it sends is not
// lost with the greeting. Below them lie connections of the pool's own, which nobody greets before their first command
// (internal/pool addIdleConn, go-redis 9.23): one that was dialled late would come to lie on top.
func greet(t *testing.T, client *redis.Client) {
	t.Helper()
	var held []*redis.Conn
	eventually(t, "connections that are greeted", func() bool {
		c := client.Conn()
		if c.Ping(t.Context()).Err() != nil {
			_ = c.Close()
			return false
		}
		held = append(held, c)
		return len(held) == 12
	})
	eventually(t, "a pool that dials no more", func() bool {
		stats := client.PoolStats()
		return stats.IdleConns+uint32(len(held)) == stats.TotalConns
	})
	for _, c := range held {
		_ = c.Close() // it goes back to the pool
	}
}

// clientOf returns the client of the server that has a conversation.
func clientOf(t *testing.T, r *replica, k Key) *redis.Client {
	t.Helper()
	cluster, ok := r.Client().(*redis.ClusterClient)
	if !ok {
		return r.Client().(*redis.Client)
	}
	master, err := cluster.MasterForKey(t.Context(), r.KeyName(k))
	must(t, err)
	return master
}

// sendsOnce does operations whose answers are cut, and counts what reached the server.
func sendsOnce(t *testing.T, r *replica, k Key, s *redistest.Server, cut func(bool)) {
	t.Helper()
	first, lost := ticket(1, 10), ticket(2, 10)
	wantPut(t, r, k, first, Stored) // the script is known
	for _, tc := range []struct {
		command string
		most    int
		do      func()
		of      TicketID
		then    Outcome // of a take
	}{
		{"evalsha", 1, func() { wantPut(t, r, k, lost, Unavailable) }, lost.ID, Taken}, // it was stored there, and is nowhere else
		{"evalsha", 1, func() { wantTake(t, r, k, first.ID, Unavailable) }, first.ID, Consumed},
		{"hmget", 2, func() { wantLook(t, r, k, Unavailable) }, lost.ID, Consumed}, // of the conversation and, if it has that, of the epoch
	} {
		greet(t, clientOf(t, r, k))
		before := calls(s, tc.command)
		cut(true)
		tc.do()
		cut(false)
		if got := calls(s, tc.command) - before; got < 1 || got > tc.most {
			t.Errorf("the server ran %s %d times, want once", tc.command, got)
		}
		wantTake(t, r, k, tc.of, tc.then)
	}
}

func TestRedis_SendsACommandOnce(t *testing.T) {
	s := redistest.Start(t)
	f := redistest.Forward(t, s.Addr())
	r := openAt(t, f.Addr())
	mustCheck(t, r)
	sendsOnce(t, r, key(1), s, f.CutReplies)
}

// clusterSendsOnce puts a forwarder before one node, which announces it as its own address.
func clusterSendsOnce(t *testing.T, nodes *redistest.ClusterNodes) {
	node := nodes.Nodes[0]
	f := redistest.Forward(t, node.Addr())
	_, port, err := net.SplitHostPort(f.Addr())
	must(t, err)
	announce := func(port, addr string) {
		node.CLI("CONFIG", "SET", "cluster-announce-port", port)
		for _, other := range nodes.Nodes { // a client may ask any of them which node has which slots
			eventually(t, "a node that knows the announced address", func() bool {
				return strings.Contains(other.CLI("CLUSTER", "NODES"), addr+"@")
			})
		}
	}
	announce(port, f.Addr())
	t.Cleanup(func() { announce("0", node.Addr()) })
	r := openRedis(t, Config{Topology: redisstore.Cluster, Addresses: []string{node.Addr()}})
	mustCheck(t, r)
	sendsOnce(t, r, keyOf(t, r, f.Addr()), node, f.CutReplies)
}

// keyOf returns the key of a conversation that a Cluster's client sends to an address.
func keyOf(t *testing.T, r *replica, addr string) Key {
	t.Helper()
	for n := range 1000 {
		if clientOf(t, r, key(n)).Options().Addr == addr {
			return key(n)
		}
	}
	t.Fatalf("no conversation of 1000 is sent to %s", addr)
	return Key{}
}

// clusterFollowsSlot moves the slot of a conversation to another master.
func clusterFollowsSlot(t *testing.T, nodes *redistest.ClusterNodes) {
	from, to := nodes.Nodes[1], nodes.Nodes[2]
	r := openRedis(t, ofCluster(nodes))
	mustCheck(t, r)
	k := keyOf(t, r, from.Addr())
	slot := from.CLI("CLUSTER", "KEYSLOT", r.KeyName(k))
	owner := to.CLI("CLUSTER", "MYID")
	for _, node := range []*redistest.Server{to, from, nodes.Nodes[0]} {
		node.CLI("CLUSTER", "SETSLOT", slot, "NODE", owner)
	}
	stray := ticket(1, 10)
	_, outcome := r.Put(t.Context(), k, stray, redisTTL)
	if outcome != Stored {
		t.Errorf("put to a master that lost the slot: got %v, want %v in this process", outcome, Stored)
	}
	wantTake(t, r, k, stray.ID, Taken)
	eventually(t, "a client that has asked for the new master", func() bool {
		master, err := r.Client().(*redis.ClusterClient).MasterForKey(t.Context(), r.KeyName(k))
		return err == nil && master.Options().Addr == to.Addr()
	})
	wantPut(t, r, k, ticket(2, 10), Stored)
	if got := to.CLI("EXISTS", r.KeyName(k)); got != "1" {
		t.Errorf("a put to the new master: the conversation exists there: got %s, want 1", got)
	}
	if !r.Shares() {
		t.Error("a slot that moved keeps the store from being used")
	}
	if got := to.CLI("CLUSTER", "COUNTKEYSINSLOT", slot); got != "1" {
		t.Errorf("keys in slot %s of its new master: got %s, want 1", slot, got)
	}
}

// clusterLosesMaster kills one master for good.
func clusterLosesMaster(t *testing.T, nodes *redistest.ClusterNodes) {
	for _, node := range nodes.Nodes {
		node.CLI("CONFIG", "SET", "cluster-require-full-coverage", "no")
	}
	r := openRedis(t, ofCluster(nodes))
	mustCheck(t, r)
	of, err := r.Client().(*redis.ClusterClient).MasterForKey(t.Context(), r.EpochName())
	must(t, err)
	others := slices.DeleteFunc(slices.Clone(nodes.Nodes), func(n *redistest.Server) bool { return n.Addr() == of.Options().Addr })
	dead, alive := keyOf(t, r, others[0].Addr()), keyOf(t, r, others[1].Addr())
	others[0].Kill()
	for n := range 3 {
		tk := ticket(n, 10)
		wantPut(t, r, dead, tk, Stored)
		wantTake(t, r, dead, tk.ID, Taken)
		tk = ticket(n, 10)
		wantPut(t, r, alive, tk, Stored)
		wantTake(t, r, alive, tk.ID, Taken)
	}
	if !r.Shares() {
		t.Error("a dead master of three keeps the others from being used")
	}
	wantLook(t, r, alive, Empty)

	// Without the master of the epoch nothing of any other is used.
	tk := ticket(9, 10)
	wantPut(t, r, alive, tk, Stored)
	for _, node := range nodes.Nodes {
		if node.Addr() == of.Options().Addr {
			node.Kill()
		}
	}
	wantTake(t, r, alive, tk.ID, Unavailable)
	wantLook(t, r, alive, Unavailable)
}

func TestTopology_IsNamed(t *testing.T) {
	for topology, want := range map[redisstore.Topology]string{
		redisstore.Single: "single", redisstore.Sentinel: "sentinel", redisstore.Cluster: "cluster", redisstore.Cluster + 1: "unknown",
	} {
		if got := topology.String(); got != want {
			t.Errorf("topology %d: got %q, want %q", int(topology), got, want)
		}
	}
}
