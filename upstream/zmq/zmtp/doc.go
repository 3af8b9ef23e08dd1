// Package zmtp speaks ZeroMQ's wire protocol with engines: ZMTP 3.0 with the NULL mechanism (https://rfc.zeromq.org/spec/23/). It
// listens to their notifications ([Server]), subscribes to their KV events ([Subscriber]) and asks for
// missed events ([Ask]).
//
// It uses only the protocol of zmq4 v0.17.0, one connection at a time (peer.go). Before zmq4, a guard reads the headers of
// frames (guard.go), because zmq4 allocates as many bytes as a header announces and panics if that is too much. The package does
// not use zmq4's sockets: they greet one peer at a time, so a silent peer keeps all others out; they answer no heartbeats; and they
// give up publishers that are away for more than a few seconds.
//
// It promises that
//
//   - no peer stops or slows others. Each peer has a goroutine, its introduction has a time limit, and a peer that breaks
//     the protocol loses only its own connection (server.go). A slow Handle slows only its own peer, through TCP;
//   - memory is bounded by Limits, whatever peers announce;
//   - an accept that fails is tried again, after a pause that grows up to half a second (server.go);
//   - libzmq's heartbeats are answered;
//   - a publisher that is away, restarts or moves is dialled again for ever (subscriber.go);
//   - everything that Serve, Run and Ask have started is over when they return.
//
// There is no authentication: whoever reaches the port may send anything. There is no delivery confirmation either: messages under
// way are lost when a connection ends, as with libzmq.
//
// The package imports no other package of this module. Its sub-package zmqtest runs libzmq's side of tests.
package zmtp
