package server

import (
	"errors"
	"strings"
	"sync"
)

// errForeign is an answer that belongs to another request. It comes of a connection
// that somebody left out of step, and must reach nobody.
var errForeign = errors.New("the answer is that of another request")

// echoes remembers which instances answer with the id of the request, as vLLM does
// (it builds the response id from X-Request-Id). Behind a gateway with ids of its
// own none does, and nothing can be told then.
type echoes struct {
	mu   sync.Mutex // guards seen
	seen map[string]bool
}

// foreign reports whether an answer with this id can't be the one to leg. An
// instance that has echoed once is held to it.
func (e *echoes) foreign(instance, leg, id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if strings.HasSuffix(id, "-"+leg) {
		e.seen[instance] = true
		return false
	}
	return id != "" && e.seen[instance]
}
