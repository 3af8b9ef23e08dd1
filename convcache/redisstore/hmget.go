package redisstore

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// reading is the end of one HMGET.
type reading struct {
	values []any
	err    error
	large  bool // it took too long while its server answered another command
}

// hmget reads fields of one hash, a value for each.
func (s *servers) hmget(ctx context.Context, key string, fields ...string) ([]any, error) {
	values, err := s.hmgets(ctx, []string{key}, fields...)
	return values[0], err
}

// hmgets reads fields of at least one hash, each from the one server that has it, and a server's hashes in one round
// trip. It returns a value for each field of a hash, or nil for a hash that could not be read, and then an error, that
// of the gravest failure: all of it is one operation.
func (s *servers) hmgets(ctx context.Context, keys []string, fields ...string) ([][]any, error) {
	read := make([]reading, len(keys))
	if _, spread := s.client.(*redis.ClusterClient); spread && len(keys) > 1 {
		s.readSpread(ctx, keys, fields, read)
	} else if server, err := s.of(ctx, keys[0]); err != nil {
		read[0].err = err
	} else {
		s.readFrom(ctx, server, keys, fields, read)
	}
	return s.concluded(read, len(fields))
}

// readSpread reads hashes of a Cluster from their masters, which are asked at the same time.
func (s *servers) readSpread(ctx context.Context, keys, fields []string, read []reading) {
	masters := make([]redis.UniversalClient, len(keys))
	for i, key := range keys {
		masters[i], read[i].err = s.of(ctx, key)
	}
	var asked sync.WaitGroup
	for i, master := range masters {
		var own []string
		var at []int
		for j := i; j < len(masters) && master != nil; j++ {
			if masters[j] == master {
				own, at, masters[j] = append(own, keys[j]), append(at, j), nil
			}
		}
		if len(own) == 0 {
			continue // it has no master, or was asked with an earlier one
		}
		asked.Go(func() {
			part := make([]reading, len(own))
			s.readFrom(ctx, master, own, fields, part)
			for n, j := range at {
				read[j] = part[n]
			}
		})
	}
	asked.Wait()
}

// readFrom reads hashes of one server. How large they are is not known before. After a failure the server is therefore
// asked for its time as well: if an answer came, that or another hash, and a hash did not, that is large, and the server
// does what is needed for others.
func (s *servers) readFrom(ctx context.Context, server redis.UniversalClient, keys, fields []string, read []reading) {
	doubt := s.doubt.Load()
	if len(keys) == 1 && !doubt {
		read[0].values, read[0].err = server.HMGet(ctx, keys[0], fields...).Result()
		return
	}
	pipeline := server.Pipeline()
	var present *redis.TimeCmd
	if doubt {
		present = pipeline.Time(ctx)
	}
	commands := make([]*redis.SliceCmd, len(keys))
	for i, key := range keys {
		commands[i] = pipeline.HMGet(ctx, key, fields...)
	}
	_, failed := pipeline.Exec(ctx)
	answers := doubt && !present.Val().IsZero()
	for i, command := range commands {
		if read[i].values, read[i].err = command.Result(); read[i].err == nil && read[i].values == nil {
			read[i].err = failed // go-redis 9.23 does not tell the commands that there is no connection
		}
		answers = answers || read[i].err == nil
	}
	for i := range read {
		read[i].large = answers && timedOut(read[i].err)
	}
}

// concluded says what the readings of one look-up show of the servers, as judged does: a failure of one, else that they
// answer, unless what was large explains what is missing.
func (s *servers) concluded(read []reading, fields int) ([][]any, error) {
	values := make([][]any, len(read))
	var failed, foreign, large, strange error
	for i, r := range read {
		switch {
		case r.large:
			large = r.err
		case isReply(r.err, "WRONGTYPE"):
			foreign = r.err
		case r.err != nil:
			failed = r.err
		case len(r.values) != fields:
			strange = odd("%d values of %d fields", len(r.values), fields)
		default:
			values[i] = r.values
		}
	}
	switch {
	case failed != nil:
		return values, s.judged(failed)
	case foreign != nil:
		return values, s.judged(foreign)
	case large != nil:
		return values, s.excused(large)
	}
	_ = s.judged(nil)
	return values, strange
}
