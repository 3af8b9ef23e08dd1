package vllmsim

import (
	"encoding/gob"
	"errors"
	"fmt"
	"net"

	"carryover/upstream/vllmsim/config"
	"carryover/upstream/vllmsim/engine"
)

// doors are the listeners of a receiver. Like the HTTP port, they keep their addresses when the engine restarts.
type doors struct{ init, alloc []net.Listener }

// openDoors opens the listeners if cfg is a receiver's.
func openDoors(cfg *config.Config) (doors, error) {
	var d doors
	if cfg.Connector != config.ConnectorLMCache || cfg.Role != "decode" {
		return d, nil
	}
	for rank := range cfg.LMCache.TP {
		for list, ports := range map[*[]net.Listener][]int{&d.init: cfg.LMCache.InitPorts, &d.alloc: cfg.LMCache.AllocPorts} {
			l, err := net.Listen("tcp", engine.PeerAddress(cfg.Host, config.Port(ports, rank)))
			if err != nil {
				return d, errors.Join(fmt.Errorf("listen for LMCache: %w", err), d.close())
			}
			*list = append(*list, l)
		}
	}
	return d, nil
}

func (d *doors) close() error {
	var errs []error
	for _, l := range append(append([]net.Listener{}, d.init...), d.alloc...) {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// serve answers senders until the listeners are closed.
func (d *doors) serve(n *network, receiver func() *engine.Engine) {
	for _, l := range d.init {
		n.accept(l, func(conn net.Conn) { serveSender(conn, receiver, true) })
	}
	for _, l := range d.alloc {
		n.accept(l, func(conn net.Conn) { serveSender(conn, receiver, false) })
	}
}

// serveSender answers one rank of a sender until the connection ends or the rank uses the wrong port.
func serveSender(conn net.Conn, receiver func() *engine.Engine, begins bool) {
	dec, enc := gob.NewDecoder(conn), gob.NewEncoder(conn)
	for {
		var req engine.SideRequest
		if dec.Decode(&req) != nil || req.Push == nil || (req.Push.Op == engine.PushInit) != begins {
			return
		}
		if enc.Encode(receiver().Answer(req)) != nil {
			return
		}
	}
}
