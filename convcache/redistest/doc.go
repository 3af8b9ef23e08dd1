// Package redistest runs real Redis servers for tests, and breaks them.
//
// Start, StartSentinel and StartCluster run redis-server on free loopback ports and return when it
// serves. Forward stands between a client and a server, for the faults that a server cannot be
// brought to by signals. A machine without redis-server fails the test: a suite that skips itself is
// green for the wrong reason.
//
// A server dies with its test, and with the test process even when that is killed (process.go).
// Nothing is left afterwards: no process, no goroutine, no file.
//
// Every wait is bounded, and ends the test with what was still missing. Therefore everything here
// is to be called from the goroutine that runs the test, except Addr, Addrs, Kill and the
// methods of Forwarder, which end nothing and may be called from anywhere.
//
// It needs Linux and Redis 7.0 or newer (redis-server, redis-cli). Its callers are the tests
// of redisstore, convcache and cmd/carryover.
package redistest
