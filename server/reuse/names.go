package reuse

import (
	"slices"
	"sync"

	"carryover/convcache"
	"carryover/server/record"
	"carryover/server/request"
)

// Bounds of what is known of ids: 1 MB in all.
const (
	maxNames = 4096 // all are forgotten beyond that
	many     = 4    // an id of so many beginnings is that of many conversations
)

// names knows with which texts the conversations of ids begin. It is safe for concurrent use.
type names struct {
	mu     sync.Mutex // guards begins
	begins map[convcache.Key][]convcache.Key
}

// shared notes a turn, and reports whether many conversations share its id.
func (n *names) shared(c *request.Conversation) bool {
	if len(c.Content) == 0 {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.begins == nil || len(n.begins) == maxNames {
		n.begins = map[convcache.Key][]convcache.Key{}
	}
	begins := n.begins[c.Key]
	if len(begins) < many && !slices.Contains(begins, c.Narrow) {
		begins = append(begins, c.Narrow)
		n.begins[c.Key] = begins
	}
	return len(begins) == many
}

// fault returns what is wrong with an id, as far as a look-up shows it.
func (l *Lookup) fault(c *request.Conversation, shared bool) record.Name {
	switch {
	case l.foreign, shared:
		return record.NameShared
	case l.byContent && !c.ByContent():
		return record.NameUnseen
	}
	return ""
}
