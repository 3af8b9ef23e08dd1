package redistest

import (
	"fmt"
	"strconv"
	"testing"

	"carryover/porttest"
)

// slots is the number of hash slots of every Redis Cluster.
const slots = 16384

// ClusterNodes is a Redis Cluster of masters without replicas.
type ClusterNodes struct {
	Nodes []*Server
}

// StartCluster runs a Redis Cluster of n masters that share the slots in equal runs, in the order of
// Nodes, and waits until each of them serves and knows all. That takes two seconds: a new master
// stays in state "fail" for so long (CLUSTER_WRITABLE_DELAY in cluster.c of Redis 7.0).
func StartCluster(tb testing.TB, n int) *ClusterNodes {
	tb.Helper()
	c := &ClusterNodes{}
	bus := make([]string, n)
	for i := range n {
		c.Nodes = append(c.Nodes, start(tb, nil, func(dir string, port int) []string {
			// By default the bus has the port ten thousand above, which may not be free, or exist.
			bus[i] = strconv.Itoa(porttest.Reserve(tb))
			return append(serverArguments(dir, port), "--cluster-port", bus[i],
				"--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-announce-ip", "127.0.0.1")
		}))
	}
	for i, node := range c.Nodes {
		node.CLI("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(i*slots/n), strconv.Itoa((i+1)*slots/n-1))
		// Masters of the same epoch would have to settle which gives way.
		node.CLI("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
	}
	for i, node := range c.Nodes {
		for j, other := range c.Nodes[:i] {
			node.CLI("CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(other.port), bus[j])
		}
	}
	for i, node := range c.Nodes {
		await(tb, fmt.Sprintf("node %d of the cluster", i), func() error {
			fields, err := node.info("CLUSTER", "INFO")
			if err != nil {
				return err
			}
			return want(fields, map[string]string{
				"cluster_state": "ok", "cluster_slots_ok": strconv.Itoa(slots), "cluster_known_nodes": strconv.Itoa(n), "cluster_size": strconv.Itoa(n),
			})
		})
	}
	return c
}

// Addrs returns the addresses of all nodes.
func (c *ClusterNodes) Addrs() []string {
	addrs := make([]string, len(c.Nodes))
	for i, node := range c.Nodes {
		addrs[i] = node.Addr()
	}
	return addrs
}
