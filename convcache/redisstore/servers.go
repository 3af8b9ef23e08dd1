package redisstore

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// sizeable is from how many bytes on their number may explain that an operation took too long. On two cores, over
// loopback, a put takes 0.06 ms for 6 KiB, 0.3 for 60, 0.6 for 120, 1.2 for 240 and 4.5 for 930, or twice as long where
// four others want the cores (BenchmarkRedis_Sizes). So a time-out of 5 ms at 64 KiB shows a server or a network some
// fifteen times slower than that.
//
// A take counts, however large its answer: a turn takes what it has just seen, and that look-up counts as a success,
// so that takes alone never are five failures in a row.
const sizeable = 64 << 10

// servers send each command once, to the one server that has its key, and say of an error what it shows.
type servers struct {
	client redis.UniversalClient
	logger *slog.Logger
	doubt  atomic.Bool // the last operation that shows anything of a server has failed
}

func newServers(cfg Config) *servers {
	return &servers{client: redis.NewUniversalClient(clientOptions(cfg)), logger: cfg.Logger}
}

// of returns the client of the one server that a key is sent to. For a Cluster that is the client of
// the master of its slot: whatever MaxRetries says, go-redis' ClusterClient repeats a command whose answer was
// lost as often as MaxRedirects allows (osscluster.go process, 9.23.0).
func (s *servers) of(ctx context.Context, key string) (redis.UniversalClient, error) {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return s.client, nil
	}
	master, err := cluster.MasterForKey(ctx, key)
	if err != nil {
		return nil, errors.Join(errNoServer, err)
	}
	return master, nil
}

// run runs a script on the one server that has the key. It is sent once; a script that the server does not know yet
// was not run, and is sent whole.
func (s *servers) run(ctx context.Context, script *redis.Script, key string, args ...any) ([]any, error) {
	server, err := s.of(ctx, key)
	if err != nil {
		return nil, s.judged(err)
	}
	reply, err := runScript(ctx, script, server, key, args...)
	if sent := lengthOf(args); sent > sizeable && timedOut(err) {
		return reply, s.excused(err, "bytes", sent)
	}
	return reply, s.judged(err)
}

// lengthOf returns how many bytes of texts are to be sent.
func lengthOf(args []any) int {
	n := 0
	for _, arg := range args {
		switch arg := arg.(type) {
		case string:
			n += len(arg)
		case []byte:
			n += len(arg)
		}
	}
	return n
}

// judged says what the end of a command shows of the server, and doubts it after a failure.
func (s *servers) judged(err error) error {
	if err == nil {
		s.doubt.Store(false)
		return nil
	}
	if isReply(err, "WRONGTYPE") { // the key is another program's
		s.doubt.Store(false)
		return wrongType(err)
	}
	s.doubt.Store(true)
	s.reload()
	return failure(err)
}

// excused returns the error of a time-out that shows nothing about the server, because the size of the request or of the
// answer may explain it. If the server answers nothing at all, smaller operations and tests show that.
func (s *servers) excused(err error, attrs ...any) error {
	s.logger.Debug("redis needed too long for what is large", append(attrs, "error", loggable(err))...)
	return excuse(err)
}

// reload has the masters of a Cluster asked for again, beside the turns: by itself the client does so every 60 s only,
// since it does not see answers like MOVED.
func (s *servers) reload() {
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		cluster.ReloadState(context.Background())
	}
}
