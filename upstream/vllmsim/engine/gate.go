package engine

import "sync"

// Gate counts what is under way and lets its owner end it: after close nothing new may enter, and everything that was inside has
// left. A WaitGroup would not do, because it does not allow an Add that races with Wait, and a late request causes that.
type Gate struct {
	mu     sync.Mutex // guards what follows
	inside int
	closed bool
	empty  chan struct{} // made by the first close, closed when inside is 0
}

// Enter returns false if the gate is closed; otherwise the caller must call leave later.
func (g *Gate) Enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.inside++
	return true
}

// Leave undoes Enter.
func (g *Gate) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside--; g.inside == 0 && g.closed {
		close(g.empty)
	}
}

// Spawn runs f in a goroutine that close waits for. After close it does nothing.
func (g *Gate) Spawn(f func()) {
	if !g.Enter() {
		return
	}
	go func() {
		defer g.Leave()
		f()
	}()
}

// Close closes the gate and returns when no goroutine is inside. It may be called more than once.
func (g *Gate) Close() {
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
