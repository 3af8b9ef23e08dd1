package server

import (
	"net"
	"time"

	"carryover/server/connlimit"
	"carryover/server/record"
)

// idleWhenCrowded is how long a client's connection may be idle while three quarters of the connections are in use. Clients that were just
// served ask again within seconds, or not for a long time.
const idleWhenCrowded = 10 * time.Second

// limited returns a listener that bounds the connections of clients.
func (s *Server) limited(listener net.Listener) *connlimit.Listener {
	clients := connlimit.Listen(listener, connlimit.Config{
		Most: s.cfg.MaxConnections, PerAddress: s.cfg.MaxPerAddress, Trusted: s.cfg.TrustedProxies, IdleWhenCrowded: idleWhenCrowded, Logger: s.cfg.Logger,
	})
	s.clients.Store(clients)
	return clients
}

func (s *Server) connections() record.Connections {
	if clients := s.clients.Load(); clients != nil {
		return record.Connections(clients.Counts())
	}
	return record.Connections{}
}
