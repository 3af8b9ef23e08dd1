package server

import (
	"net"
	"time"

	"carryover/server/connlimit"
)

// idleWhenCrowded is how long a client's connection may be idle while three quarters of the connections are in use. Clients that have just
// been served ask again within seconds, or not for a while.
const idleWhenCrowded = 10 * time.Second

// limited bounds the connections of clients.
func (s *Server) limited(listener net.Listener) *connlimit.Listener {
	clients := connlimit.Listen(listener, connlimit.Config{
		Most: s.cfg.MaxConnections, PerAddress: s.cfg.MaxPerAddress, Trusted: s.cfg.TrustedProxies, IdleWhenCrowded: idleWhenCrowded, Logger: s.cfg.Logger,
	})
	s.clients.Store(clients)
	return clients
}

// Connections are connections of clients that were closed for the sake of others.
type Connections struct {
	Refused uint64 // new ones of an address that had its share
	Idle    uint64 // idle ones, earlier than they would have been
}

func (s *Server) connections() Connections {
	if clients := s.clients.Load(); clients != nil {
		return Connections(clients.Counts())
	}
	return Connections{}
}
