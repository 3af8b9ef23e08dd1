package vllmsim

import "sync"

// gate counts what is under way and lets its owner end it: after close nothing new comes in, and everything that was
// inside has left. A WaitGroup does not allow an Add that races with Wait, which is what a late request does.
type gate struct {
	mu     sync.Mutex // guards what follows
	inside int
	closed bool
	empty  chan struct{} // made by the first close, closed when inside is 0
}

// enter reports false when the gate is closed; otherwise the caller must leave.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.inside++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside--; g.inside == 0 && g.closed {
		close(g.empty)
	}
}

// spawn runs f in a goroutine that close waits for, or not at all.
func (g *gate) spawn(f func()) {
	if !g.enter() {
		return
	}
	go func() {
		defer g.leave()
		f()
	}()
}

// close may be called more than once and returns when no goroutine is inside.
func (g *gate) close() {
	g.mu.Lock()
	if !g.closed {
		g.closed = true
		g.empty = make(chan struct{})
		if g.inside == 0 {
			close(g.empty)
		}
	}
	empty := g.empty
	g.mu.Unlock()
	<-empty
}
