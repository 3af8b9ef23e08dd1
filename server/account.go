package server

import (
	"net/http"
	"strings"
	"time"

	"carryover/server/record"
)

// account learns from a turn that has ended, and passes its record to the observers.
func (s *Server) account(t *turn, err error) {
	t.record.Took, t.record.Err = time.Since(t.record.Began), err
	if t.record.Path.Way == record.WayDecodeOnly && t.record.Status == http.StatusOK {
		s.turns.ratios.learn(t, t.record.Answer.PromptTokens) // on the other ways prefill's answer has given the number
	}
	t.record.Unserved = t.record.Model != "" && !s.deps.Fleet.Serves(t.record.Model)
	t.record.Answer.Finish = clip(t.record.Answer.Finish)
	for _, observe := range s.observers {
		observe(&t.record)
	}
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
