// Package upstream is the engine side of Carryover: the configured vLLM instances,
// the plan of an attempt, and its two legs. The client's request as engines get it is
// package body.
//
// It promises that
//
//   - an upstream path, header and address are never derived from what a client
//     sent: paths are constants per API (package body), headers are built from an
//     allow-list (leg.go, client.go) on which a client's own are its credential, if the
//     operator wants that, and its trace context, as the server has parsed and written it
//     anew; addresses are those of instances, which sources name (instance.go);
//   - members of a request that need no change reach the engine byte for byte
//     (package body); connectors keep the same for kv_transfer_params;
//   - an error says whether any byte of the leg may have reached an engine
//     ([LegError.Sent]), because that alone decides what may be tried again;
//   - a prefill answer or an error body is checked, and its nesting bounded, before
//     anything reads it ([rawjson.Valid], errors.go), or while it is read (prefill.go);
//   - an answer is never taken for younger than it is, whatever stood still while it
//     was read ([Stream.FreshAsOf]; stream.go);
//   - a connection serves another leg only if nothing has come behind its last answer
//     (package http1; conn.go);
//   - a leg ends when its context ends, or after the grace that decode gets then
//     (stream.go, leg.go), and no goroutine outlives it; one that hands back ends with
//     the first event of its answer, of which nothing more is read (handback.go);
//   - a connection whose host has vanished is given up (conn_linux.go);
//   - whether the process that gave an answer may have ended since is known from the
//     connections that are open ([Witness]; witness.go, conn_linux.go);
//   - no leg and no question reads an answer of more than its bound (fetch.go,
//     prefill.go, handback.go, stream.go).
//
// It refuses to follow redirects, to use proxies from the environment, to
// decompress, and to repeat a request on its own (client.go). Package http1 carries the
// requests.
//
// The package knows nothing of conversations or of the store, and of a ticket only
// what a connector is told and tells (plan.go). Packages server and fleet
// call it. What is known of the live engines is in the sub-package fleet, what a KV
// connector puts on the wire in connector, how an instance is chosen in routing, and
// where instances come from in discovery.
//
// # Bodies are written once
//
// A leg's body is made of pieces of the client's with what is new between them. A goroutine writes a long one while the
// answer is awaited, and ends before the answer is returned.
//
// # The age of an answer
//
// A ticket's time counts from a moment at which nothing of decode's end had arrived. For a whole answer that is the start
// of its leg. For a stream it is the beginning of a read before the one that brought the end, which left nothing behind.
// So neither a slow client nor a process or machine that stood still makes a ticket look younger, at the cost of some
// seconds of its life. Ages are the longer of the monotonic and the wall clock's: the first stands still while a machine
// is suspended, the second can be set back.
package upstream
