// Package sse relays a stream of server-sent events from an engine to a client and lets the caller look at each event
// before the client can see it. It knows bytes, lines and events (WHATWG HTML 9.2.5 and 9.2.6), the top level of a JSON
// object and the places where an answer has token ids, and nothing of engines, HTTP or conversations; JSON is read by
// package rawjson. The turn that relays decode's answer is its caller.
//
// It promises:
//   - What goes out equals what came in, byte for byte, except for the member that is cut, the ranges that the caller
//     replaces, the events that are dropped, and what is held back when the relay ends in an error. Order never changes, but for
//     comments that go out before an event that is held back, and no edit can end a line or an event, or let a cut member through. (relay.go, buffer.go, edit.go)
//   - How the bytes are spread over reads changes nothing but the moment of a write: the same events are observed and
//     the same bytes go out. (frame.go)
//   - Every complete event of a read goes out in one write and one flush before the next read, and an event is observed
//     before its bytes go out. (relay.go)
//   - Only a member at the top level of an event's JSON object is captured or cut, however its name is spelled; text that
//     merely looks like it, in a string or deeper down, never is. The same holds for token ids, and for events that are
//     nested deeper than anything reads: what is too deep is passed over, the member beside it is cut. (relay.go, data.go,
//     tokenids.go, rawjson.Scanner.Pass) A member that is null goes too, and is absent for the observer. Where it ends a chunk,
//     as in each chunk of vLLM 0.33, its bytes alone are looked at. (null.go)
//   - An event that needs no change is neither parsed as JSON nor copied. No event costs an allocation for itself, edited
//     or not. A stream of small events holds 1 KiB, one that has got more at once 4 KiB, one whose edits add bytes 8 KiB at
//     times. Streams that share a Memory leave their arrays to each other, and none sees bytes of another.
//     (relay.go, buffer.go, edit.go, memory.go)
//
// It refuses to repair or invent anything: no [DONE], no keep-alive, no line end is added. What is not JSON passes as it
// came, but for a member beside what is nested too deep to be checked, and a null that ends it as it ends a chunk. An event longer than Config.MaxEvent passes
// unobserved and uncut, in constant memory, unless Config.Bounded is set.
//
// It fails in four ways, which a caller has to tell apart: *ReadError (the engine broke off; the unfinished event and
// what was held back have not been written), *WriteError (the client is gone), ErrStopped (the caller's own verdict),
// ErrOversize (an event that the caller could not look at).
// Nil is a clean end of the stream, whatever its last event was.
package sse
