// Package nixl reads and writes kv_transfer_params for vLLM's NixlConnector in pull mode. It checks the few members that decide
// whether blocks may be read at all. It forwards all other members bit for bit, because engines add their own.
//
// An engine's params are foreign text: their size is bounded (params.go), and an error says which member is wrong without
// repeating a value. Nothing is repaired: a ticket that can't be parsed, or can't be cut to the tokens that prefill may read
// (shorten.go), is not used. Params are parsed once, in one pass (members.go), when they come. The result has the places where
// they change on their way (forward.go), and a ticket keeps it beside the text. Params without a result are parsed again.
//
// A ticket that no turn uses can be handed back whole (handback.go). A hand-back leg writes into prefill's cache, which other
// requests read, so everything about it that can be checked is checked.
package nixl
