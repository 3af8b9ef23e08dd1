// Package sse relays server-sent events from an engine to a client, and shows each event to the caller before the client sees it. It knows
// bytes, lines and events (WHATWG HTML 9.2.5 and 9.2.6), the top level of a JSON object, and the places of token ids.
//
// It promises:
//   - The output equals the input, byte for byte, except for the cut member, replaced ranges, dropped events, and bytes held back at an
//     error. Only comments change their place: they go out before a held event. No edit can end a line or an event, or expose a cut
//     member. (settle.go, buffer.go, edit.go)
//   - Number and size of reads affect only the moments of writes, not the observed events and the bytes. (frame.go)
//   - All complete events of a read go out in one write and one flush before the next read, each after its observation. Comments are never
//     held. An event that waits only for the next one waits Config.Patience at most. (relay.go, settle.go)
//   - Only a member at the top level of an event's object is captured or cut, under any spelling of its name. Similar text in strings or
//     deeper down is not; the same holds for token ids. A value that is nested too deep to be read is skipped, and the member beside it is
//     cut. (settle.go, frame.go, tokenids.go)
//   - A null member is cut, and the observer sees none. If it ends a chunk, as in vLLM 0.33, only these bytes are read. (edit.go)
//   - An event that needs no change is neither parsed nor copied, and no event costs an allocation of its own. A stream holds 1 KiB, after
//     larger reads 4 KiB, with edits that add bytes sometimes 8 KiB. Streams with one Memory see no bytes of each other. (buffer.go)
//
// It invents nothing: no [DONE], no keep-alive, no line end. Data that is not JSON passes unchanged, except for a null member that ends it
// as it ends a chunk. An event longer than Config.MaxEvent, or without memory from Config.Room, passes unobserved in constant memory, with
// null for Config.Blank; with Config.Bounded it is an error.
//
// Errors: *ReadError (the engine broke off; the unfinished event and held bytes are not written), *WriteError (the client is gone),
// ErrStopped (the caller's verdict) and ErrOversize. Without an error the stream has ended cleanly, whatever its last event was.
package sse
