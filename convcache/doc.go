// Package convcache stores tickets: the right of a prefill instance to read the KV blocks that decode holds after a turn.
//
// vLLM moves blocks by position and compares nothing. A ticket for another history, used twice or used too late gives a wrong answer
// without an error. So the package promises:
//
//   - Take returns a ticket at most once (memory.go: one critical section; package redisstore: one script on one server). A ticket has one
//     home, this process or the shared store (shared.go).
//   - No ticket is usable at or after its deadline, by the monotonic or the wall clock. Putting it back never moves the deadline
//     later (expiry.go).
//   - Two conversations share a key only if tenant, model, cache salt, sub-agent and id are all equal; without an id, users' texts stand for
//     sub-agent and id. A key reveals none of them (conversation.go).
//   - IDs.Offer offers only tokens that the new prompt has at the same positions from the first on, by keyed 64-bit hashes (chain.go,
//     offer.go). A ticket without a chain is never offered. An outline proves nothing: it shows where a history was rewritten.
//   - Put returns the tickets that it displaced, so that the caller can release their blocks (ticket.go).
//   - A note is stored, displaced and bounded like a ticket. It never displaces a ticket, and a later turn's ticket outdates it (memory.go).
//   - An operation waits at most as long as its context grants, and not at all while the breaker is open (health.go). A ticket that is
//     certainly not in the shared store stays in this process.
//
// Store operations return an Outcome and no error: all but Found, Taken and Stored are misses, which cost only time. Package convcachetest
// tests the contract of all stores. remote.go has the interfaces of stores.
package convcache
