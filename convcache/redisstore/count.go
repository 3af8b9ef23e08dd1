package redisstore

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// countBatch is how many keys a server looks at in one step of a count. A million keys take about 0.3 s.
const countBatch = 1000

// Count returns the number of conversations in Redis, including those with only notes.
func (s *Store) Count(ctx context.Context) (int, error) {
	cluster, ok := s.servers.client.(*redis.ClusterClient)
	if !ok {
		return s.scan(ctx, s.servers.client)
	}
	var mu sync.Mutex // guards total: masters are asked at the same time
	total := 0
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		n, err := s.scan(ctx, master)
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

// scan counts the conversations of one server: the keys with a hash tag, which the hashes of quarantines do not have.
func (s *Store) scan(ctx context.Context, server redis.UniversalClient) (int, error) {
	n, cursor := 0, uint64(0)
	for {
		keys, next, err := server.Scan(ctx, cursor, globEscape(s.names.conversations)+"*", countBatch).Result()
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
