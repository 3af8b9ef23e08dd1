// Package outline remembers what the history of a request looks like without its content, so that a turn which finds its history
// rewritten can say where. It promises that
//
//   - it holds nothing of a request but keyed 64-bit hashes, whose key is random and never leaves the process, and the names of
//     members that vLLM has given a meaning: no text, no role, no name that a client has chosen (outline.go);
//   - an outline costs one hash over the prompt, whose parts were told apart when the body was scanned: 64 KiB of chat take 33 µs on
//     a core that has other work (BenchmarkOf);
//   - its memory is bounded, whatever clients send: 512 messages or 4,096 KiB of a text are told apart in one outline, a
//     conversation has four, and all of them together have a limit (memory.go);
//   - it proves nothing. What may be reused is decided by package proof alone.
//
// Equal bytes are equal content. A client that writes the same text in another way (other escapes, other white space, another
// order inside of a tool call) differs from itself here, as it may well do for the engine.
package outline
