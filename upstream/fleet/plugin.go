package fleet

// PlugIn tells whether the params of this decode start carry output_token_ids.
func (s *Incarnation) PlugIn() Finding {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.plugIn
}

// LearnPlugIn records an answer that could have left a ticket, and whether its
// params had output ids. The first without them is the end of it: a plug-in that
// speaks sometimes is none, because without its ids a turn leaves no ticket.
func (s *Incarnation) LearnPlugIn(present bool) {
	if !s.Known() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !present:
		s.plugIn = No
	case s.plugIn == Unknown:
		s.plugIn = Yes
	}
}
