// Package body reads the JSON of a client's request and writes the bodies of its legs.
//
// It promises that
//
//   - it refuses text that two JSON parsers could read differently, and a client's own kv_transfer_params (request.go);
//   - members that need no change reach the engine byte for byte (rewrite.go, package rawjson);
//   - prefill and decode get the same prompt: an edit of one leg changes nothing that shapes the prompt;
//   - a member that may change the rendered prompt rules out a comparison of token ids (features.go, rewrite.go), and
//     content that may not be text rules out any proof (plain.go). Each such reason has a name;
//   - no path derives from a client's request: paths are constants per API (request.go).
//
// One scan of a body (rawjson.List) notes where the members of each message are. The estimate of its length (estimate.go, prompt.go),
// content hashes (content.go), features, outline, text check and history digest read these notes. Estimate and content hashes use no
// tokenizer; they choose an instance, a path and a ticket, and prove nothing.
//
// The package knows no instance, no leg and no answer. Package upstream sends the bodies.
package body
