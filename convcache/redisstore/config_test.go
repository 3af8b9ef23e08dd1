package redisstore_test

import (
	"testing"

	"carryover/convcache/redisstore"
)

func TestTopology_IsNamed(t *testing.T) {
	for topology, want := range map[redisstore.Topology]string{
		redisstore.Single: "single", redisstore.Sentinel: "sentinel", redisstore.Cluster: "cluster", redisstore.Cluster + 1: "unknown",
	} {
		if got := topology.String(); got != want {
			t.Errorf("topology %d: got %q, want %q", int(topology), got, want)
		}
	}
}
