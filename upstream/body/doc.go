// Package body reads the JSON of a client's request and writes the bodies of its legs.
//
// It promises that
//
//   - text that two JSON parsers could read differently is refused, and so are a client's own kv_transfer_params
//     (request.go);
//   - members that need no change reach the engine byte for byte (rewrite.go, package rawjson);
//   - prefill and decode get the same prompt: an edit of one leg changes nothing that shapes the prompt;
//   - whatever is not known to leave the rendered prompt alone rules out a comparison of token ids (features.go,
//     rewrite.go), and what is not known to be text any proof (plain.go); whatever rules out a proof or a prefill leg has
//     a name (features.go);
//   - no path is derived from what a client sent: paths are constants per API (request.go).
//
// How long a prompt is and how it begins (Prompt) is read without a tokenizer, in one pass (estimate.go, prompt.go):
// enough to choose an instance and a path, and no proof of anything. The texts of users name a conversation without an id (content.go),
// and prove nothing either.
//
// # Bodies are read once
//
// One scan of a body (rawjson.List) notes where the members of each message are. Estimate, content hashes, features,
// outline, text check and history digest read these notes.
//
// The package knows no instance, no leg and no answer. Package upstream sends what it writes.
package body
