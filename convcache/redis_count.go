package convcache

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// How long a count of the keys is good for, and how long counting may take: a million keys take about 0.3 s.
const (
	countEvery   = 10 * time.Second
	countTimeout = time.Second
	countBatch   = 1000
)

// keyCount is the last count of the keys.
type keyCount struct {
	mu    sync.Mutex // held while counting
	at    time.Time
	value int
}

// Len returns the number of conversations that the replicas share, counted at most every 10 s, and those that
// only this process has. While Redis does not answer it is the last count.
func (r *Redis) Len() int {
	local := r.home.Len()
	r.count.mu.Lock()
	defer r.count.mu.Unlock()
	if now := r.cfg.Now(); r.breaker.allows() && (r.count.at.IsZero() || now.Sub(r.count.at) >= countEvery) {
		r.count.at = now
		if n, err := r.countKeys(); err == nil {
			r.count.value = n
		}
	}
	return r.count.value + local
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

// scan counts the keys of one server.
func (r *Redis) scan(ctx context.Context, server redis.UniversalClient) (int, error) {
	prefix := r.cfg.Prefix + ":" + redisVersion + ":"
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
