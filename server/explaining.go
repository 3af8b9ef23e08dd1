package server

import (
	"net/http"

	"carryover/server/explain"
	"carryover/server/pick"
)

// ExplainHandler answers operators what would become of a request.
func (s *Server) ExplainHandler() http.Handler {
	tickets, picker := s.turns.Steps()
	return explain.New(explain.Config{
		Config: s.cfg.Config, Secret: s.deps.Secret, Named: s.deps.Prefillers != nil, MaxHeaderBytes: s.cfg.MaxHeaderBytes,
	}, explain.Deps{
		Fleet: s.deps.Fleet, Prover: tickets.Prover, Finder: tickets.Finder, Picker: picker,
		Errors:  s.turns.Errors(),
		Routing: func() pick.Routing { return s.turns.Routing().Picks() },
		Queue: func() explain.QueueNow {
			toBegin, forInstance := s.Waiting()
			return explain.QueueNow{Draining: s.slots.Closed(), Full: s.slots.Full(), ToBegin: toBegin, ForInstance: forInstance}
		},
	})
}
