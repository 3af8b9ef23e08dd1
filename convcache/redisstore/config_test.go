package redisstore_test

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"carryover/convcache"
	"carryover/convcache/redisstore"
	"carryover/convcache/redistest"
)

// wantLimits are those of any client, but for its times to read, write and wait for the pool.
const wantLimits = "0 1 64 128 4 -1 true true disabled 250ms "

// limitsOf returns the options of a client of one server that decide how often and how long it tries, as it has them after its own
// defaults were filled in.
func limitsOf(c *redis.Client) string {
	o := c.Options()
	return fmt.Sprintln(o.MaxRetries, o.DialerRetries, o.PoolSize, o.MaxActiveConns, o.MinIdleConns, o.PipelinePoolSize, o.ContextTimeoutEnabled, o.DisableIdentity,
		o.MaintNotificationsConfig.Mode, o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout)
}

// Reads and writes have 20 ms, or the longer Timeout.
func TestRedis_ClientHasItsLimits(t *testing.T) {
	for _, row := range []struct {
		cfg  Config
		want string
	}{
		{Config{Timeout: 5 * time.Millisecond}, wantLimits + "20ms 20ms 5ms\n"},
		{Config{Timeout: 5 * time.Millisecond, Topology: redisstore.Sentinel, Master: "m"}, wantLimits + "20ms 20ms 5ms\n"},
		{Config{Timeout: time.Second}, wantLimits + "1s 1s 1s\n"},
	} {
		row.cfg.Addresses = []string{"127.0.0.1:1"}
		if got := limitsOf(openRedis(t, row.cfg).Client().(*redis.Client)); got != row.want {
			t.Errorf("%+v: got %s, want %s", row.cfg, got, row.want)
		}
	}
}

// runsInACluster checks what is so of a Cluster alone, and loses two of its masters.
func runsInACluster(t *testing.T, nodes *redistest.ClusterNodes) {
	t.Helper()
	r := openRedis(t, Config{Topology: redisstore.Cluster, Addresses: nodes.Addrs(), Timeout: time.Second})
	if got := limitsOf(clientOf(t, r, k1)); got != wantLimits+"1s 1s 1s\n" || r.Client().(*redis.ClusterClient).Options().MaxRedirects != 0 {
		t.Errorf("a master's client has the limits %s, or follows redirects", got)
	}
	t.Run("a lost answer is not asked for again", func(t *testing.T) { clusterSendsOnce(t, nodes) })
	t.Run("a moved slot is found again", func(t *testing.T) { clusterFollowsSlot(t, nodes) })
	t.Run("each master is asked for its own keys", func(t *testing.T) { clusterReadsMasters(t, nodes) })
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
	r.put(k, first) // the script is known
	for _, tc := range []struct {
		command string
		most    int
		do      func()
		of      Ticket
		then    Outcome // of a take
	}{
		{"evalsha", 1, func() { r.put(k, lost, Unavailable) }, lost, Taken}, // it was stored there, and is nowhere else
		{"evalsha", 1, func() { r.take(k, first, Unavailable) }, first, Consumed},
		{"hmget", 2, func() { r.look(k, Unavailable) }, lost, Consumed}, // of the conversation and, if it has that, of the epoch
	} {
		greet(t, clientOf(t, r, k))
		before := s.Calls(tc.command)
		cut(true)
		tc.do()
		cut(false)
		if got := s.Calls(tc.command) - before; got < 1 || got > tc.most {
			t.Errorf("the server ran %s %d times, want once", tc.command, got)
		}
		r.take(k, tc.of, tc.then)
	}
}

func TestRedis_SendsACommandOnce(t *testing.T) {
	s := redistest.Start(t)
	f := redistest.Forward(t, s.Addr())
	r := openAt(t, f)
	r.check()
	sendsOnce(t, r, k1, s, f.CutReplies)
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
	r.check()
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
	r.check()
	k := keyOf(t, r, from.Addr())
	slot := from.CLI("CLUSTER", "KEYSLOT", r.KeyName(k))
	owner := to.CLI("CLUSTER", "MYID")
	for _, node := range []*redistest.Server{to, from, nodes.Nodes[0]} {
		node.CLI("CLUSTER", "SETSLOT", slot, "NODE", owner)
	}
	stray := ticket(1, 10)
	r.put(k, stray) // in this process
	r.take(k, stray)
	eventually(t, "a client that has asked for the new master", func() bool {
		master, err := r.Client().(*redis.ClusterClient).MasterForKey(t.Context(), r.KeyName(k))
		return err == nil && master.Options().Addr == to.Addr()
	})
	r.put(k, ticket(2, 10))
	if !r.Shares() {
		t.Error("a slot that moved keeps the store from being used")
	}
	if got := to.CLI("CLUSTER", "COUNTKEYSINSLOT", slot); got != "1" {
		t.Errorf("keys in slot %s of its new master: got %s, want 1", slot, got)
	}
}

// clusterReadsMasters checks that conversations are spread, and found from one address.
func clusterReadsMasters(t *testing.T, nodes *redistest.ClusterNodes) {
	r := openRedis(t, Config{Topology: redisstore.Cluster, Addresses: nodes.Addrs()[:1], Prefix: "spread"})
	r.check()
	all := keysTo(3 * convcache.MaxKeys)
	for n, k := range all {
		r.put(k, ticket(n, 10))
	}
	if got := r.Len(); got != len(all) {
		t.Errorf("conversations: got %d, want %d", got, len(all))
	}
	asked := func() (counts []int) {
		for _, node := range nodes.Nodes {
			counts = append(counts, node.Calls("hmget"))
		}
		return counts
	}
	before, total := asked(), 0
	for keys := range slices.Chunk(all, convcache.MaxKeys) {
		r.keys(keys, Found, keys...)
	}
	for i, got := range asked() {
		if got == before[i] {
			t.Errorf("node %d was asked nothing", i)
		}
		total += got - before[i]
	}
	if total != len(all)+len(all)/convcache.MaxKeys {
		t.Errorf("masters were asked %d times for %d keys and the epoch of each look-up", total, len(all))
	}
}

// clusterLosesMaster kills one master for good.
func clusterLosesMaster(t *testing.T, nodes *redistest.ClusterNodes) {
	for _, node := range nodes.Nodes {
		node.CLI("CONFIG", "SET", "cluster-require-full-coverage", "no")
	}
	r := openRedis(t, ofCluster(nodes))
	r.check()
	of, err := r.Client().(*redis.ClusterClient).MasterForKey(t.Context(), r.EpochName())
	must(t, err)
	others := slices.DeleteFunc(slices.Clone(nodes.Nodes), func(n *redistest.Server) bool { return n.Addr() == of.Options().Addr })
	dead, alive := keyOf(t, r, others[0].Addr()), keyOf(t, r, others[1].Addr())
	others[0].Kill()
	for n := range 3 {
		for _, k := range []Key{dead, alive} {
			tk := ticket(n, 10)
			r.put(k, tk)
			r.take(k, tk)
		}
	}
	tk := ticket(9, 10)
	r.put(alive, tk)
	r.keys([]Key{dead, alive}, Found, alive)
	r.keys([]Key{dead}, Unavailable)
	if !r.Shares() {
		t.Error("a dead master of three keeps the others from being used")
	}

	// Without the master of the epoch nothing of any other is used.
	for _, node := range nodes.Nodes {
		if node.Addr() == of.Options().Addr {
			node.Kill()
		}
	}
	r.take(alive, tk, Unavailable)
	r.look(alive, Unavailable)
}
