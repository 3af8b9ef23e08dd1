// Package msgpack reads and writes MessagePack as engines send it: notifications of LMCache, registrations of P2P NCCL
// and MoRI-IO, KV events of vLLM.
//
// It promises that
//
//   - reading allocates by what is there and never by a length that a message announces: a header that announces more
//     than the message has bytes for is malformed (general libraries allocate gigabytes for five bytes);
//   - nesting is bounded by [MaxDepth];
//   - unknown types (extensions, timestamps) and keys that are no strings are skipped, and so is what a caller leaves
//     unread of a map or an array, so that fields of newer engines do no harm;
//   - no input makes it panic.
//
// It knows the whole format (github.com/msgpack/msgpack, spec.md) and no schema. It is a leaf: it imports nothing of ours.
package msgpack
