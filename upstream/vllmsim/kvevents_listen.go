package vllmsim

import (
	"fmt"
	"net"
	"strconv"

	"carryover/upstream/vllmsim/config"
)

// listenEvents opens the sockets of a rank.
func (r *rank) listenEvents(host string, cfg config.KVEvents) (err error) {
	open := func(port int) (net.Listener, error) {
		switch {
		case port == 0:
			return nil, nil
		case port < 0:
			port = 0
		default:
			port += r.index
		}
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			return nil, fmt.Errorf("listen for KV events: %w", err)
		}
		return l, nil
	}
	if r.events, err = open(cfg.Port); err == nil && cfg.Port != 0 {
		r.replays, err = open(cfg.ReplayPort)
	}
	return err
}

// KVEvents returns the endpoint at which a rank publishes events, tcp://host:port, or "" if it publishes none.
func (i *Instance) KVEvents(rank int) string { return eventEndpoint(i.ranks[rank].events) }

// KVReplays returns the endpoint at which a rank replays old events.
func (i *Instance) KVReplays(rank int) string { return eventEndpoint(i.ranks[rank].replays) }

func eventEndpoint(l net.Listener) string {
	if l == nil {
		return ""
	}
	return "tcp://" + l.Addr().String()
}

// acceptEvents serves the connections of a socket until it is closed.
func (i *Instance) acceptEvents(l net.Listener, serve func(conn net.Conn) error) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		if !i.track(conn) {
			_ = conn.Close() // the instance is closing
			return
		}
		i.serving.Spawn(func() {
			defer i.untrack(conn)
			_ = serve(conn) // it does not matter if a peer goes away
		})
	}
}
