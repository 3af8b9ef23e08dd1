package server

import "carryover/server/admission"

// SetQueue changes the limits of both queues while the server runs.
func (s *Server) SetQueue(cfg admission.QueueConfig) { s.slots.Configure(cfg) }

// Waiting returns how many turns wait to begin, and how many wait for an instance.
func (s *Server) Waiting() (toBegin, forInstance int) { return s.slots.Waiting() }

// Open returns how many turns have a slot now.
func (s *Server) Open() int { return s.slots.Open() }
