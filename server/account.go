package server

import (
	"net/http"
	"strings"

	"carryover/server/record"
)

// account learns from a turn that has ended, passes its record to the observers, and returns the record.
func (s *Server) account(t *turn, err error) *record.Turn {
	r := t.record.End(err)
	if r.Path.Way == record.WayDecodeOnly && r.Status == http.StatusOK {
		s.turns.legs.ratios.Learn(&t.Request, r.Answer.PromptTokens) // on the other ways prefill's answer has given the number
	}
	r.Unserved = r.Model != "" && !s.deps.Fleet.Catalogue.Serves(r.Model)
	r.Answer.Finish = clip(r.Answer.Finish)
	for _, observe := range s.observers {
		observe(r)
	}
	return r
}

// maxFinish bounds a finish_reason, which is text from an engine. Those of vLLM have at most fourteen bytes.
const maxFinish = 64

// clip returns a copy. The text that it is given is part of the whole answer, which observers would otherwise keep in memory.
func clip(finish string) string {
	if len(finish) > maxFinish {
		finish = strings.ToValidUTF8(finish[:maxFinish], "")
	}
	return strings.Clone(finish)
}
