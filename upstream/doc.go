// Package upstream is the engine side of Carryover: the configured vLLM instances, the plan of an attempt, and its two
// legs.
//
// It promises that
//
//   - no upstream path, header or address derives from a client's request: paths are constants per API (package body),
//     headers come from a fixed list (client.go, leg.go), addresses come from instances (instance.go). A client's own
//     are its credential, if the operator wants that, and its trace context, which the server writes anew;
//   - members of a request that need no change reach the engine byte for byte (package body), as does kv_transfer_params;
//   - an error says whether a byte of the leg may have reached an engine ([LegError.Sent]): only that decides about a retry;
//   - a prefill answer or an error body is checked, and its nesting bounded, no later than it is read
//     ([rawjson.Valid], errors.go, prefill.go);
//   - every answer has a bound (fetch.go, prefill.go, handback.go, stream.go);
//   - a connection serves another leg only if no byte followed its last answer (package http1; conn.go);
//   - a leg ends with its context, or after the grace that decode gets then (stream.go, leg.go), and no goroutine
//     outlives it. A leg that hands back ends with the first event of its answer (handback.go);
//   - a connection to a vanished host is given up (conn_linux.go);
//   - open connections show whether the process that gave an answer may have ended since ([Witness]; witness.go).
//
// It follows no redirect, uses no proxy from the environment, does not decompress, and repeats no request (client.go). It
// knows no conversation and no store, and of a ticket only what it exchanges with a connector (plan.go).
//
// # Bodies are written once
//
// A leg's body consists of pieces of the client's body and new bytes between them. A goroutine writes a long body while
// the leg waits for the answer, and ends before the answer is returned.
//
// # The age of an answer
//
// A ticket's time counts from a moment at which nothing of the end of decode's answer had arrived ([Stream.FreshAsOf]).
// For a whole answer that is the start of its leg. For a stream it is the start of an earlier read that left nothing
// behind. So neither a slow client nor a process or machine that stood still makes a ticket look younger; the cost is
// some seconds of its life. Ages are the longer of the monotonic and the wall clock's: the first stands still while a
// machine is suspended, the second can be set back.
package upstream
