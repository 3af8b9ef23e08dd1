// Package msgpack reads MessagePack as engines send it: notifications of LMCache and
// KV events of vLLM.
//
// It promises that
//
//   - reading allocates for the bytes that are present and never for a length that a message announces. A header that
//     announces more than the message has bytes for is malformed (decoders of whole messages allocate gigabytes for five bytes);
//   - [MaxDepth] bounds nesting;
//   - fields of newer engines do no harm: it skips unknown types (extensions, timestamps), keys that are not strings, and
//     whatever a caller does not read of a map or an array;
//   - no input makes it panic.
//
// It knows the whole format (github.com/msgpack/msgpack, spec.md) and no schema. The bytes of single values are read by
// github.com/tinylib/msgp. It imports no other package of this module.
package msgpack
