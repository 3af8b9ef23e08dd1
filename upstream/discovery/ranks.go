package discovery

import (
	"strconv"
	"strings"

	"carryover/upstream"
)

// Ranks returns the n data-parallel ranks behind one address as instances: name@0 to name@(n-1). vLLM's API server
// sends a request to the rank that X-data-parallel-rank names, and each rank has its own KV cache. If n is 0, the result
// is the instance itself. If the instance publishes KV events, its endpoint is rank 0's, and the other ranks have the next
// ports (vllm/distributed/kv_events.py, offset_endpoint_port).
func Ranks(instance upstream.Instance, n int) []upstream.Instance {
	if n <= 0 {
		return []upstream.Instance{instance}
	}
	all := make([]upstream.Instance, n)
	for rank := range all {
		all[rank] = instance
		all[rank].Name = instance.Name + "@" + strconv.Itoa(rank)
		all[rank].Rank, all[rank].Ranked = rank, true
		all[rank].KVEvents = portBehind(instance.KVEvents, rank)
	}
	return all
}

// portBehind returns the endpoint with more added to its port. Text that does not end in a number is returned unchanged.
func portBehind(endpoint string, more int) string {
	colon := strings.LastIndexByte(endpoint, ':')
	port, err := strconv.Atoi(endpoint[colon+1:])
	if colon < 0 || err != nil {
		return endpoint
	}
	return endpoint[:colon+1] + strconv.Itoa(port+more)
}

// location is where an instance answers. Two instances of one role at one location are the same engine.
type location struct {
	role      upstream.Role
	authority string
	rank      int
	ranked    bool
}

func locationOf(i upstream.Instance) location {
	return location{i.Role, i.Authority(), i.Rank, i.Ranked}
}

// address returns the location as a name: host:port, followed by the rank if there is one.
func (p location) address() string {
	if p.ranked {
		return p.authority + "@" + strconv.Itoa(p.rank)
	}
	return p.authority
}
