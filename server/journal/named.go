package journal

import "time"

// Named is a conversation whose turns had a client's id.
type Named struct {
	Conversation string    `json:"conversation"` // as the log names it
	Model        string    `json:"model,omitempty"`
	Turns        int       `json:"turns"` // of those that are kept
	Last         time.Time `json:"last"`  // when the newest of them began
}

// maxNamed bounds the conversations of one id.
const maxNamed = 100

// Named returns the conversations whose turns had the id with this keyed hash, the newest first: several if tenants, models or sub-agents
// share an id.
func (j *Journal) Named(id [8]byte) []Named {
	named, at := []Named{}, map[string]int{}
	for _, r := range j.pick(len(j.ring), func(e *entry) bool { return e.id == id && e.id != [8]byte{} && e.Conversation != "" }) {
		i, known := at[r.Conversation]
		if !known {
			if len(named) == maxNamed {
				continue
			}
			i = len(named)
			at[r.Conversation] = i
			named = append(named, Named{Conversation: r.Conversation, Model: r.Model, Last: r.Began})
		}
		named[i].Turns++
	}
	return named
}
