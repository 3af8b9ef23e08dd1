package redisstore

import (
	"context"
	_ "embed"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"carryover/convcache"
)

// sizeable is the size in bytes that may explain a time-out. On two cores, over loopback, a put takes 0.06 ms for 6 KiB, 0.3 for 60, 0.6 for
// 120, 1.2 for 240 and 4.5 for 930, or twice that with four others on the cores. So a time-out of 5 ms at 64 KiB
// shows a server or a network some fifteen times slower.
//
// A take counts however large its answer is: the look-up before it counts as a success, so takes alone never make five failures in a row.
const sizeable = 64 << 10

// servers send each command once, to the one server with its key, and say what an error shows.
type servers struct {
	client redis.UniversalClient
	logger *slog.Logger
	doubt  atomic.Bool // the last operation that shows anything has failed
}

// of returns the client of the one server for a key. In a Cluster that is the master of its slot: whatever MaxRetries says, ClusterClient
// repeats a command without an answer as often as MaxRedirects allows (osscluster.go process, 9.23.0).
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

// run runs a script once, on the server with the key. A script that the server does not know has not run, so it is then sent whole.
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

// judged says what the end of a command shows about the server.
func (s *servers) judged(err error) error {
	if err == nil {
		s.doubt.Store(false)
		return nil
	}
	if isReply(err, "WRONGTYPE") { // another program's key
		s.doubt.Store(false)
		return &convcache.RemoteError{Err: quiet{err}, Unapplied: true, Shows: convcache.ShowsAnswer}
	}
	s.doubt.Store(true)
	s.reload()
	return &convcache.RemoteError{Err: quiet{err}, Unapplied: notApplied(err)}
}

// excused returns the error of a time-out that the size of the request or answer may explain. Smaller operations and tests show whether the
// server answers at all.
func (s *servers) excused(err error, attrs ...any) error {
	s.logger.Debug("redis needed too long for a large request or answer", append(attrs, "error", loggable(err))...)
	return &convcache.RemoteError{Err: quiet{err}, Shows: convcache.ShowsNothing}
}

// reload asks a Cluster for its masters again. The client does so only every 60 s, because it does not see answers like MOVED.
func (s *servers) reload() {
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		cluster.ReloadState(context.Background())
	}
}

//go:embed shared.lua
var sharedLua string

//go:embed take.lua
var takeLua string

//go:embed put.lua
var putLua string

//go:embed mark.lua
var markLua string

//go:embed epoch.lua
var epochLua string

//go:embed pinned.lua
var pinnedLua string

type scripts struct {
	take, put, mark, epoch, pinned *redis.Script
}

func newScripts(shared, take, put string) scripts {
	return scripts{
		take: redis.NewScript(shared + take), put: redis.NewScript(shared + put), mark: redis.NewScript(markLua),
		epoch: redis.NewScript(epochLua), pinned: redis.NewScript(pinnedLua),
	}
}

// runScript turns the answer of a script without a fence into an error.
func runScript(ctx context.Context, script *redis.Script, server redis.UniversalClient, key string, args ...any) ([]any, error) {
	reply, err := script.Run(ctx, server, []string{key}, args...).Slice()
	if text(reply, 0) == "unfenced" {
		return nil, errNoFence
	}
	return reply, err
}

func text(reply []any, at int) string {
	if at >= len(reply) {
		return ""
	}
	s, _ := reply[at].(string)
	return s
}

type reading struct {
	values []any
	err    error
	large  bool // it took too long while its server answered another command
}

func (s *servers) hmget(ctx context.Context, key string, fields ...string) ([]any, error) {
	values, err := s.hmgets(ctx, []string{key}, fields...)
	return values[0], err
}

// hmgets reads the same fields of several hashes, a server's hashes in one round trip. A hash that could not be read is nil, and the error is
// the gravest failure: all of it is one operation.
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

// readSpread asks the masters of a Cluster at the same time.
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
			continue // no master, or read with an earlier key
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

// readFrom reads hashes of unknown size. After a failure it also asks for the server's time: if any answer comes, a hash without one is
// large, and the server works.
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

// concluded says what a look-up shows of the servers, as judged does: a failure of one of them, unless size explains what is missing.
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
