// Package http1 is a client for HTTP/1.1 (RFC 9112) for legs to engines: it sends requests with a body of known length, reads answers as
// they arrive, and keeps connections for the next request.
//
// net/http's Transport costs two goroutines, channels between them and two buffers per connection, because it has to
// serve any use of HTTP. Here a request is written and its answer read by the goroutine that calls, straight from the
// connection into the caller's buffer, so that an open answer holds no buffer of ours at all. A leg takes 0.4 of the CPU
// time that it takes with net/http's client, and an open one 4 KB in place of 28.
//
// It promises that
//
//   - it sends nothing twice: a request goes out on one connection, and the caller decides about retries
//     ([Request].Connected tells whether a byte can have been sent);
//   - it refuses an answer whose framing is ambiguous (head.go, chunks.go), and a connection serves another request only if its answer
//     ended where the framing says and no byte followed (pool.go, [Conn].Quiet);
//   - a read waits only while there is nothing to return, and leaves no byte of the answer behind in a buffer unless it
//     has filled the caller's;
//   - the end of a context ends every wait, at once, and its cause is the error, until an answer is detached from it
//     ([Response.Detach]);
//   - no more than 16 KiB of a request's body are copied, and nothing refers to it when [Client.Do] has returned. A longer one
//     is written on a goroutine, because the peer may answer before it has read that (exchange.go);
//   - no goroutine outlives a call of [Client.Do], and idle connections have none: one timer closes those of all;
//   - errors are texts of this package or errors of the connection, and never quote what a peer has sent.
//
// It does not follow redirects, know proxies or cookies, ask for codings, or speak HTTP/2; it does not dial and knows
// nothing of TLS, which is the caller's (Config.Dial). Package upstream alone uses it.
package http1
