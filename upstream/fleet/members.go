package fleet

import "carryover/upstream"

// members are the engines of a fleet at a moment. They are replaced, never changed.
type members struct {
	engines map[upstream.Role][]*Engine
	named   map[upstream.Role]map[string]*Engine
	placed  map[string][]*Engine // by address
}

// add adds an engine as its instance is configured.
func (m *members) add(e *Engine) {
	m.engines[e.Role] = append(m.engines[e.Role], e)
	if m.named[e.Role] == nil {
		m.named[e.Role] = map[string]*Engine{}
	}
	m.named[e.Role][e.Name] = e
	m.placed[e.BaseURL] = append(m.placed[e.BaseURL], e)
}

// all yields the engines, those of decode first.
func (m *members) all(yield func(*Engine) bool) {
	for _, role := range []upstream.Role{upstream.RoleDecode, upstream.RolePrefill} {
		for _, e := range m.engines[role] {
			if !yield(e) {
				return
			}
		}
	}
}
