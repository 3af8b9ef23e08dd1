package http1

import (
	"testing"
	"time"
)

// clinging is a connection whose peer takes no goodbye, as over TLS one may.
type clinging struct {
	script
	closing chan struct{} // has something when Close is called
	let     chan struct{} // Close returns when it is closed
}

func (c *clinging) Close() error {
	c.closing <- struct{}{}
	<-c.let
	return nil
}

// However long a connection takes to close, the connections of other requests are there meanwhile.
func TestPool_ClosesOutsideItsLock(t *testing.T) {
	for name, end := range map[string]func(p *pool, at peer, c Conn){
		"drop": func(p *pool, at peer, _ Conn) { p.drop(at) }, "drop all": func(p *pool, _ peer, _ Conn) { p.dropAll() },
		"age": func(p *pool, _ peer, _ Conn) { p.keep = 0; p.sweep() }, "no room": func(p *pool, at peer, c Conn) { p.most = 1; p.put(at, c) },
	} {
		t.Run(name, func(t *testing.T) {
			p := &pool{most: 2, keep: time.Hour}
			slow, other := peer{"https", "slow"}, peer{"https", "other"}
			c := &clinging{closing: make(chan struct{}, 1), let: make(chan struct{})}
			p.put(slow, c)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				end(p, slow, c)
			}()
			<-c.closing
			served := make(chan struct{})
			go func() { // as another request does
				defer close(served)
				_ = p.take(other)
			}()
			select {
			case <-served:
			case <-time.After(10 * time.Second):
				t.Error("another request waits for a connection that is closed")
			}
			close(c.let)
			<-ended
			<-served
			p.mu.Lock()
			if p.timer != nil {
				p.timer.Stop()
			}
			p.mu.Unlock()
		})
	}
}
