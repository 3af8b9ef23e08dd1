package vllmsim

import (
	"fmt"
	"net"
	"slices"

	"carryover/upstream/vllmsim/config"
	"carryover/upstream/vllmsim/engine"
)

// doors are the listeners of a receiver. Like the HTTP port, they keep their addresses when the engine restarts.
type doors struct{ init, alloc []net.Listener }

func openDoors(cfg *config.Config) (doors, error) {
	var d doors
	if cfg.Connector != config.ConnectorLMCache || cfg.Role != "decode" {
		return d, nil
	}
	for rank := range cfg.LMCache.TP {
		for list, ports := range map[*[]net.Listener][]int{&d.init: cfg.LMCache.InitPorts, &d.alloc: cfg.LMCache.AllocPorts} {
			l, err := net.Listen("tcp", engine.PeerAddress(cfg.Host, config.Port(ports, rank)))
			if err != nil {
				return d, fmt.Errorf("listen for LMCache: %w", err)
			}
			*list = append(*list, l)
		}
	}
	return d, nil
}

func (d *doors) close() {
	for _, l := range slices.Concat(d.init, d.alloc) {
		_ = l.Close() // nothing to lose
	}
}

// serve answers senders until the listeners close. A rank that uses the wrong port loses its connection.
func (d *doors) serve(n *network, receiver func() *engine.Engine) {
	for begins, list := range map[bool][]net.Listener{true: d.init, false: d.alloc} {
		for _, l := range list {
			n.accept(l, func(conn net.Conn) {
				_ = engine.ServeSide(conn, receiver, func(req engine.SideRequest) bool {
					return req.Push != nil && (req.Push.Op == engine.PushInit) == begins
				}) // the sender has gone
			})
		}
	}
}
