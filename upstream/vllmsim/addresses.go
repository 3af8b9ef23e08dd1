package vllmsim

import (
	"net"
	"strconv"
)

// Addresses are where clients of other protocols than HTTP reach an instance. They stay the same when the engine restarts.
type Addresses struct {
	// KVEvents and KVReplays are the endpoints of each rank that publish events and replay old events: tcp://host:port, or "" for none.
	KVEvents, KVReplays []string
	// LMCacheInit and LMCacheAlloc are the ports of an LMCache receiver, by rank.
	LMCacheInit, LMCacheAlloc []int
	// Bootstrap is the base URL of the server beside Mooncake's prefill instances, and BootstrapPort its port; "" and 0 for none.
	Bootstrap     string
	BootstrapPort int
}

// Addresses returns where clients of other protocols than HTTP reach the instance.
func (i *Instance) Addresses() Addresses {
	a := Addresses{
		LMCacheInit: ports(i.doors.init), LMCacheAlloc: ports(i.doors.alloc),
	}
	for _, r := range i.ranks {
		a.KVEvents = append(a.KVEvents, eventEndpoint(r.events))
		a.KVReplays = append(a.KVReplays, eventEndpoint(r.replays))
	}
	if i.bootstrap != nil {
		at := i.bootstrap.listener.Addr().(*net.TCPAddr)
		host, _, _ := net.SplitHostPort(i.network.address)
		a.BootstrapPort, a.Bootstrap = at.Port, "http://"+net.JoinHostPort(host, strconv.Itoa(at.Port))
	}
	return a
}

func ports(list []net.Listener) (numbers []int) {
	for _, l := range list {
		numbers = append(numbers, l.Addr().(*net.TCPAddr).Port)
	}
	return numbers
}

func eventEndpoint(l net.Listener) string {
	if l == nil {
		return ""
	}
	return "tcp://" + l.Addr().String()
}
