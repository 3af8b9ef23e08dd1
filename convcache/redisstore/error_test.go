package redisstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"
)

// reply is an error reply as a server sends it.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

// The texts are those of Redis 6.2.14, Redis 7.0.15 and Valkey 9.1.2.
func TestNotApplied_TellsRefusalsBeforeAnyChange(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want bool
	}{
		{reply("OOM command not allowed when used memory > 'maxmemory'. script: 5a, on @user_script:1."), true},
		{reply("ERR Error running script (call to f_9b): @user_script:1: @user_script: 1: -OOM command not allowed when used memory > 'maxmemory'."), true},
		{reply("ERR Error running script (call to f_9b): @user_script:1: @user_script: 1: -READONLY You can't write against a read only replica."), true},
		{reply("READONLY You can't write against a read only replica. script: 5a, on @user_script:1."), true},
		{reply("WRONGTYPE Operation against a key holding the wrong kind of value script: 5a, on @user_script:1."), true},
		{reply("ERR Error running script (call to f_df): @user_script:1: WRONGTYPE Operation against a key holding the wrong kind of value"), true},
		{reply("LOADING Redis is loading the dataset in memory"), true},
		{reply("NOPERM this user has no permissions to run the 'evalsha' command"), true},
		{reply("NOPERM ACL failure in script: User carryover has no permissions to run the 'pexpire' command script: 5a, on @user_script:1."), false},
		{reply("ERR Error running script (call to f_9b): @user_script:1: @user_script: 1: -NOPERM The user executing the script can't run this command or subcommand"), false},
		{reply("ERR The user executing the script can't run this command or subcommand script: 5a, on @user_script:1."), false},
		{reply("MOVED 3999 127.0.0.1:6381"), true},
		{fmt.Errorf("wrapped: %w", reply("CLUSTERDOWN The cluster is down")), true},
		{&net.OpError{Op: "dial", Err: errors.New("connection refused")}, true},
		{redis.ErrPoolTimeout, true},
		{errors.Join(errNoServer, context.DeadlineExceeded), true},
		{reply("ERR value is not an integer script: 5a, on @user_script:1."), false},
		{reply("UNKILLABLE Sorry the script already executed write commands"), false},
		{&net.OpError{Op: "read", Err: errors.New("connection reset by peer")}, false},
		{&net.OpError{Op: "write", Err: errors.New("broken pipe")}, false},
		{context.DeadlineExceeded, false},
		{io.EOF, false},
		{errors.New("OOM command not allowed"), false}, // no reply of a server
	} {
		if got := notApplied(tc.err); got != tc.want {
			t.Errorf("not applied by %q: got %v, want %v", tc.err, got, tc.want)
		}
	}
}
