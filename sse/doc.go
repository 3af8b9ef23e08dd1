// Package sse relays a stream of server-sent events from an engine to a client and lets the caller look at each event
// before the client can see it. It knows bytes, lines and events (WHATWG HTML 9.2.5 and 9.2.6), the top level of a JSON
// object, and where an answer has token ids. It knows nothing of engines, HTTP or conversations. Package rawjson reads the JSON.
// Its caller is the turn that relays decode's answer.
//
// It promises:
//   - What goes out equals what came in, byte for byte. The exceptions: the member that is cut, ranges that the caller replaces,
//     events that are dropped, and bytes held back when the relay ends in an error. Only comments change their place: they
//     go out before an event that is held back. No edit can end a line or an event or expose a cut member. (settle.go, buffer.go,
//     edit.go)
//   - The number and size of reads change nothing but the moment of a write: the same events are observed and
//     the same bytes go out. (frame.go)
//   - Every complete event of a read goes out in one write and one flush before the next read, and an event is observed
//     before its bytes go out. Comments are never held back. An event that waits only for the next one waits Config.Patience at
//     most, while the next read lasts. (relay.go, settle.go)
//   - Only a member at the top level of an event's JSON object is captured or cut, however its name is spelled; text that
//     looks like it, in a string or deeper down, never is. The same holds for token ids. It also holds for events that are
//     nested too deep to be read: the deep value is skipped, and the member beside it is cut. (settle.go, frame.go, tokenids.go,
//     rawjson.Scanner.Pass) A member that is null is cut too, and the observer sees none. If it ends a chunk, as in each
//     chunk of vLLM 0.33, only those bytes are read. (edit.go)
//   - An event that needs no change is neither parsed as JSON nor copied, and no event, edited or not, costs an allocation of
//     its own. A stream of small events holds 1 KiB, one that has had larger reads 4 KiB, and one whose edits add bytes
//     sometimes 8 KiB. Streams that share a Memory reuse each other's arrays, and none sees bytes of another.
//     (relay.go, buffer.go, edit.go)
//
// It repairs and invents nothing: it adds no [DONE], no keep-alive and no line end. Data that is not JSON passes unchanged, with two
// exceptions: it cuts a member beside a value that is nested too deep to be checked, and a null member whose bytes end the data as
// they end a chunk. An event longer than Config.MaxEvent passes unobserved, in constant memory and with null in place of Config.Blank, unless Config.Bounded is set, and so does one that
// Config.Room has no memory for.
//
// It fails in four ways that a caller has to tell apart: *ReadError (the engine broke off; the unfinished event and held
// bytes have not been written), *WriteError (the client is gone), ErrStopped (the caller's own verdict) and ErrOversize (an event
// that the caller could not look at). A nil error is a clean end of the stream, whatever its last event was.
package sse
