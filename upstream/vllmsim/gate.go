package vllmsim

import "sync"

// gate counts what is under way and lets its owner end it: after close nothing new may enter, and everything that was inside has
// left. A WaitGroup would not do, because it does not allow an Add that races with Wait, and a late request causes that.
type gate struct {
	mu     sync.Mutex // guards what follows
	inside int
	closed bool
	empty  chan struct{} // made by the first close, closed when inside is 0
}

// enter returns false if the gate is closed; otherwise the caller must call leave later.
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

// spawn runs f in a goroutine that close waits for. After close it does nothing.
func (g *gate) spawn(f func()) {
	if !g.enter() {
		return
	}
	go func() {
		defer g.leave()
		f()
	}()
}

// close closes the gate and returns when no goroutine is inside. It may be called more than once.
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
