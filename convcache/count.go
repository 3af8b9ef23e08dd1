package convcache

import (
	"context"
	"sync"
	"time"
)

// How long a count of the remote conversations is used, how long a caller waits for a new one, and how long counting
// may take: Redis needs about 0.3 s for a million keys.
const (
	countEvery   = 10 * time.Second
	countWait    = 100 * time.Millisecond
	countTimeout = 5 * time.Second
)

// remoteCount is the last count of the remote conversations.
type remoteCount struct {
	mu    sync.Mutex // guards what follows
	began time.Time  // of the last count
	value int
	under chan struct{} // closed when the count under way has ended; nil if there is none
}

// Len returns the number of conversations that the replicas share, counted at most every 10 s, plus those of this
// process alone. Conversations with only a note are included. If the remote store does not answer in time, the last
// count is used.
func (s *Shared) Len() int {
	if under := s.recount(); under != nil {
		select {
		case <-under:
		case <-time.After(countWait):
		}
	}
	s.count.mu.Lock()
	defer s.count.mu.Unlock()
	return s.count.value + s.home.Len()
}

// recount returns the count that is under way, after starting one if the last is too old. A count ends after
// countTimeout, or when the remote store is closed.
func (s *Shared) recount() <-chan struct{} {
	c := &s.count
	c.mu.Lock()
	defer c.mu.Unlock()
	now := s.now()
	if c.under != nil || !s.breaker.allows() || !c.began.IsZero() && now.Sub(c.began) < countEvery {
		return c.under
	}
	under := make(chan struct{})
	c.began, c.under = now, under
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), countTimeout)
		defer cancel()
		n, err := s.remote.Count(ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		if err == nil {
			c.value = n
		}
		c.under = nil
		close(under)
	}()
	return under
}
