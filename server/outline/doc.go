// Package outline remembers the shape of a request's history without its content. If a turn's history was rewritten, the program can then
// say where. The package promises that
//
//   - it holds nothing of a request except keyed 64-bit hashes, whose key is random and never leaves the process, and the names of
//     members that vLLM has given a meaning: no text, no role, no name that a client has chosen (outline.go);
//   - an outline costs one hash over the prompt, whose parts were found when the body was scanned: 64 KiB of chat take 33 µs on a core
//     that has other work (BenchmarkOf);
//   - its memory is bounded, whatever clients send: one outline tells apart 512 messages or 4,096 KiB of a text, a conversation has four
//     outlines, and all of them together have a limit (memory.go);
//   - it proves nothing. Package proof alone decides what may be reused.
//
// Content is compared byte by byte. A client that writes the same text in another way (other escapes, other white space, another order
// inside of a tool call) counts as different here, and may differ for the engine, too.
package outline
