package fleet

import "carryover/upstream/fleet/facts"

// PlugIn says whether the params of this decode incarnation carry output_token_ids, which a plug-in in vLLM adds.
func (s *Incarnation) PlugIn() facts.Finding {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.plugIn
}

// LearnPlugIn records whether the params of an answer that could leave a ticket had output ids. The first answer
// without them withdraws the finding: without its ids a turn leaves no ticket, so a plug-in that adds them only
// sometimes is of no use.
func (s *Incarnation) LearnPlugIn(present bool) {
	if !s.Known() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !present:
		s.plugIn = facts.No
	case s.plugIn == facts.Unknown:
		s.plugIn = facts.Yes
	}
}
