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
	for want, errs := range map[bool][]error{
		true: {
			reply("OOM command not allowed when used memory > 'maxmemory'. script: 5a, on @user_script:1."),
			reply("ERR Error running script (call to f_9b): @user_script:1: @user_script: 1: -OOM command not allowed when used memory > 'maxmemory'."),
			reply("ERR Error running script (call to f_9b): @user_script:1: @user_script: 1: -READONLY You can't write against a read only replica."),
			reply("READONLY You can't write against a read only replica. script: 5a, on @user_script:1."),
			reply("WRONGTYPE Operation against a key holding the wrong kind of value script: 5a, on @user_script:1."),
			reply("ERR Error running script (call to f_df): @user_script:1: WRONGTYPE Operation against a key holding the wrong kind of value"),
			reply("LOADING Redis is loading the dataset in memory"),
			reply("NOPERM this user has no permissions to run the 'evalsha' command"),
			reply("MOVED 3999 127.0.0.1:6381"),
			fmt.Errorf("wrapped: %w", reply("CLUSTERDOWN The cluster is down")),
			&net.OpError{Op: "dial", Err: errors.New("connection refused")},
			redis.ErrPoolTimeout,
			errors.Join(errNoServer, context.DeadlineExceeded),
		},
		false: {
			reply("NOPERM ACL failure in script: User carryover has no permissions to run the 'pexpire' command script: 5a, on @user_script:1."),
			reply("ERR Error running script (call to f_9b): @user_script:1: @user_script: 1: -NOPERM The user executing the script can't run this command or subcommand"),
			reply("ERR The user executing the script can't run this command or subcommand script: 5a, on @user_script:1."),
			reply("ERR value is not an integer script: 5a, on @user_script:1."),
			reply("UNKILLABLE Sorry the script already executed write commands"),
			&net.OpError{Op: "read", Err: errors.New("connection reset by peer")},
			&net.OpError{Op: "write", Err: errors.New("broken pipe")},
			context.DeadlineExceeded,
			io.EOF,
			errors.New("OOM command not allowed"), // no reply of a server
		},
	} {
		for _, err := range errs {
			if got := notApplied(err); got != want {
				t.Errorf("not applied by %q: got %v, want %v", err, got, want)
			}
		}
	}
}
