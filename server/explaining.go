package server

import (
	"net/http"

	"carryover/server/explain"
	"carryover/server/pick"
)

// ExplainHandler answers operators what would become of a request.
func (s *Server) ExplainHandler() http.Handler {
	return explain.New(explain.Config{
		Config: s.cfg.Config, Secret: s.deps.Secret, Named: s.deps.Prefillers != nil, MaxHeaderBytes: s.cfg.MaxHeaderBytes,
	}, explain.Deps{
		Fleet: s.deps.Fleet, Prover: s.turnHandler.intake.prover, Finder: s.turnHandler.turns.finder, Picker: s.turnHandler.turns.picker,
		Errors: s.turnHandler.errors, Meaning: meaning,
		Routing: func() pick.Routing { return s.turnHandler.Routing().picks() },
		Queue: func() explain.QueueNow {
			toBegin, forInstance := s.Waiting()
			return explain.QueueNow{Draining: s.slots.Closed(), Full: s.slots.Full(), ToBegin: toBegin, ForInstance: forInstance}
		},
	})
}
