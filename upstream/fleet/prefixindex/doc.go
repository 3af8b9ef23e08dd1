// Package prefixindex says which prefill engines hold which beginnings of prompts, so that a prompt goes where its
// beginning is in the prefix cache. Beginnings are told apart by hashes of pieces of text. Which an engine has is known by
// what was sent to it (index.go), or, of an engine that publishes KV events, by what it holds (cache.go, holders.go).
//
// It promises that
//
//   - the index is bounded and refers to no incarnation that has ended (index.go, holders.go);
//   - of an engine that publishes KV events the cached blocks are known completely or not at all (cache.go);
//   - hashes are seeded, so that no client can construct prompts that count as those of others (hash.go);
//   - events of one engine don't keep picks waiting for all of the others (holders.go).
package prefixindex
