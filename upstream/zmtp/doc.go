// Package zmtp speaks ZeroMQ's wire protocol, ZMTP 3.0 with the NULL mechanism (https://rfc.zeromq.org/spec/23/), with
// engines: it listens to their notifications and registrations ([Server]), subscribes to their KV events ([Subscriber]) and
// asks for those that it missed ([Ask]).
//
// It takes the protocol from zmq4 v0.17.0 and nothing else: one connection at a time (peer.go), behind a guard that reads
// the headers of frames first (guard.go), because zmq4 allocates what a header announces and panics where that is too
// much. The sockets of zmq4 are not used. They greet one peer at a time, so that a silent one keeps all others out, answer no
// heartbeats, and give up publishers that were away for longer than a few seconds.
//
// It promises that
//
//   - no peer stops or slows others: each has a goroutine, its introduction has a time limit, and one that breaks the
//     protocol loses its own connection only (server.go). What a Handle does slows its own peer, through TCP;
//   - memory is bounded by Limits, whatever peers announce;
//   - an accept that fails is tried again, after a pause that grows up to half a second (server.go);
//   - libzmq's heartbeats are answered;
//   - a publisher that is away, restarts or moves is dialled again for ever (subscriber.go);
//   - what Serve, Run and Ask have started is over when they return.
//
// There is no authentication: whoever reaches the port may say anything. Nor is delivery confirmed: what is on its way when a
// connection ends is lost, as it is with libzmq.
//
// It is a leaf: it imports nothing of ours. Its sub-package zmqtest runs libzmq's side of tests.
package zmtp
