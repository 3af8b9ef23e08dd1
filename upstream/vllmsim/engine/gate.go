package engine

import "sync"

// Gate counts what is under way and lets its owner end it: after Close nothing new may enter, and everything that was inside has
// left. A WaitGroup alone would not do, because it does not allow an Add that races with Wait, and a late request causes that.
type Gate struct {
	mu     sync.Mutex // guards closed
	closed bool
	inside sync.WaitGroup
}

// Enter returns false if the gate is closed; otherwise the caller must call Leave later.
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

// Spawn runs f in a goroutine that Close waits for. After Close it does nothing.
func (g *Gate) Spawn(f func()) {
	if g.Enter() {
		go func() {
			defer g.Leave()
			f()
		}()
	}
}

// Close closes the gate and returns when no goroutine is inside. It may be called more than once.
func (g *Gate) Close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.inside.Wait()
}
