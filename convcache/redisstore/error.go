package redisstore

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"carryover/convcache"
)

// Errors after which nothing was applied: no server to send to, or a script without a fence.
var (
	errNoServer = errors.New("no server for this conversation")
	errNoFence  = errors.New("the server shows no master_replid")
)

// refusals begin errors with which a server refuses a command, or a script's first write, before any change (Redis 7.0 server.c
// processCommand, script.c scriptCall; Valkey the same).
var refusals = [...]string{ //nolint:gochecknoglobals // immutable
	"READONLY", "LOADING", "OOM", "MISCONF", "NOAUTH", "WRONGPASS", "NOREPLICAS", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN",
	"MOVED", "ASK", "CROSSSLOT", "BUSY ", "WRONGTYPE", "ERR max number of clients reached",
}

// notApplied reports whether a command has certainly changed nothing: it was never sent, or refused.
func notApplied(err error) bool {
	for _, unsent := range [...]error{errNoServer, errNoFence, redis.ErrPoolTimeout, redis.ErrPoolExhausted, redis.ErrClosed} {
		if errors.Is(err, unsent) {
			return true
		}
	}
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return true
	}
	if isReply(err, "NOPERM") {
		// If the ACL forbids a later command of the script, the first write has happened.
		return !strings.Contains(err.Error(), "script")
	}
	return isReply(err, refusals[:]...)
}

// timedOut reports whether a command that may have been sent ran out of time.
func timedOut(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout() && !notApplied(err)
}

func odd(format string, args ...any) error {
	return &convcache.RemoteError{Err: fmt.Errorf("the server answers "+format, args...), Shows: convcache.ShowsAnswer}
}

type quiet struct{ cause error }

func (q quiet) Error() string { return loggable(q.cause) }

func (q quiet) Unwrap() error { return q.cause }

// loggable omits what a server repeats of a command, which may be a password: "ERR unknown command 'auth', with args beginning with: …".
func loggable(err error) string {
	if err == nil {
		return ""
	}
	text, _, _ := strings.Cut(err.Error(), ", with args")
	return text
}

// isReply reports whether err is an error reply with one of the prefixes, after what a script adds.
func isReply(err error, prefixes ...string) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false
	}
	for _, text := range [...]string{reply.Error(), withinScript(reply.Error())} {
		for _, prefix := range prefixes {
			if strings.HasPrefix(text, prefix) {
				return true
			}
		}
	}
	return false
}

// withinScript returns the error of a command in a script. Before Redis 7 it follows its place: "ERR Error running script (call to f_…):
// @user_script:12: @user_script: 12: -OOM command not…".
func withinScript(text string) string {
	const place = "@user_script"
	at := strings.LastIndex(text, place)
	if at < 0 {
		return text
	}
	return strings.TrimLeft(text[at+len(place):], ": 0123456789-")
}

// lines logs faults of values and tickets, each line at most once a minute.
type lines struct {
	logger                *slog.Logger
	now                   func() time.Time
	forged, fenced, large limited
}

type limited struct{ last atomic.Int64 } // Unix seconds

func (l *limited) due(now time.Time) bool {
	last := l.last.Load()
	return now.Unix()-last >= 60 && l.last.CompareAndSwap(last, now.Unix())
}

func (l *lines) warnForged() {
	if l.forged.due(l.now()) {
		l.logger.Warn("redis holds values that are not authentic: another version wrote them, or somebody else did")
	}
}
