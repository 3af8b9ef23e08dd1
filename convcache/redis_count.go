package convcache

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// How long a count of the keys is good for, how long one is waited for, and how long it may take: a million keys take
// about 0.3 s.
const (
	countEvery   = 10 * time.Second
	countWait    = 100 * time.Millisecond
	countTimeout = 5 * time.Second
	countBatch   = 1000
)

// keyCount is the last count of the conversations' keys.
type keyCount struct {
	mu    sync.Mutex // guards what follows
	began time.Time  // of the last count
	value int
	under chan struct{} // closed when the count under way has ended; nil if there is none
}

// Len returns the number of conversations that the replicas share, counted at most every 10 s, and those that
// only this process has. While Redis does not answer, or takes its time, it is the last count.
func (r *Redis) Len() int {
	if under := r.recount(); under != nil {
		select {
		case <-under:
		case <-time.After(countWait):
		}
	}
	r.count.mu.Lock()
	defer r.count.mu.Unlock()
	return r.count.value + r.home.Len()
}

// recount returns the count that is under way, and begins one where it is time. A count ends after countTimeout, and
// Close ends it sooner.
func (r *Redis) recount() <-chan struct{} {
	c := &r.count
	c.mu.Lock()
	defer c.mu.Unlock()
	now := r.cfg.Now()
	if c.under != nil || !r.breaker.allows() || !c.began.IsZero() && now.Sub(c.began) < countEvery {
		return c.under
	}
	under := make(chan struct{})
	c.began, c.under = now, under
	go func() {
		n, err := r.countKeys()
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

func (r *Redis) countKeys() (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), countTimeout)
	defer cancel()
	cluster, ok := r.client.(*redis.ClusterClient)
	if !ok {
		return r.scan(ctx, r.client)
	}
	var mu sync.Mutex // guards total: masters are asked at the same time
	total := 0
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		n, err := r.scan(ctx, master)
		mu.Lock()
		defer mu.Unlock()
		total += n
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("count keys: %w", err)
	}
	return total, nil
}

// scan counts the conversations of one server: keys with a hash tag, which that of the bars has not.
func (r *Redis) scan(ctx context.Context, server redis.UniversalClient) (int, error) {
	prefix := r.cfg.Prefix + ":" + redisVersion + ":{"
	n, cursor := 0, uint64(0)
	for {
		keys, next, err := server.Scan(ctx, cursor, globEscape(prefix)+"*", countBatch).Result()
		if err != nil {
			return 0, fmt.Errorf("count keys: %w", err)
		}
		n += len(keys)
		if next == 0 {
			return n, nil
		}
		cursor = next
	}
}

// globEscape makes a text match itself in SCAN.
func globEscape(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(text)
}
