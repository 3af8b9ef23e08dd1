package engine

import "sync"

// Gate counts activities and lets its owner end them: after Close nothing enters, and everything has left. A WaitGroup alone would not do: it
// does not allow an Add that races with Wait, which a late request causes.
type Gate struct {
	mu     sync.Mutex // guards closed
	closed bool
	inside sync.WaitGroup
}

// Enter returns false if the gate is closed. Otherwise the caller must call Leave.
func (g *Gate) Enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.inside.Add(1)
	}
	return !g.closed
}

// Leave undoes Enter.
func (g *Gate) Leave() { g.inside.Done() }

// Spawn runs f in a goroutine for which Close waits. After Close it does nothing.
func (g *Gate) Spawn(f func()) {
	if g.Enter() {
		go func() {
			defer g.Leave()
			f()
		}()
	}
}

// Close closes the gate and returns when nothing is inside. It may be called more than once.
func (g *Gate) Close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.inside.Wait()
}
