// Package convcache keeps what the last turns of a conversation left behind: the tickets by which a
// prefill instance can read the KV blocks that a decode instance still holds.
//
// vLLM moves blocks by position and compares nothing, so a ticket used for another history, used
// twice, or used too late gives a silently wrong answer. The package promises:
//
//   - A ticket is handed out at most once, ever (memory.go: Take is one critical section; shared.go: it has
//     one home, this process or what replicas share; package redisstore: one script on one server).
//   - No ticket is handed out at or after its deadline, by the monotonic clock or by the wall clock, and
//     putting one back never moves that deadline to later (expiry.go, which also removes what has passed
//     it).
//   - Two conversations share a key only if tenant, model, cache salt, sub-agent and id are all
//     equal, and a key reveals none of them. Without an id, the texts of users stand in place of
//     sub-agent and id (conversation.go).
//   - IDs.Offer offers only tokens of a ticket that the new prompt has too, at the same positions from
//     the first on, as far as keyed 64-bit hashes can tell (chain.go, offer.go).
//   - Put returns the tickets that a later ticket makes superfluous, so that decode can be told to free
//     their blocks (ticket.go).
//   - A note, by which the next turn finds its KV in a prefill instance's own cache, is kept, displaced, bounded and
//     counted like a ticket. It never replaces a ticket, and it is not stored if a later turn has stored a ticket
//     meanwhile (ticket.go, memory.go).
//   - An operation waits for a shared store at most as long as its context grants, and does not wait at all once
//     the breaker is open (shared.go, health.go). A ticket that is certainly not in the shared store is
//     kept in this process.
//
// There is no chain if the numbers of tokens do not agree, and a ticket without a chain is never offered. An outline
// proves nothing: it says where a history was rewritten (ticket.go).
//
// The caller is server, once before a turn's prefill leg (Peek, Take) and once before the client
// sees the end of the stream (Put). Store operations return an Outcome and never an error: every
// outcome but Found, Taken and Stored is a miss, and a miss costs time only. Losing every ticket, as
// after a restart, costs one recomputation per conversation. Package convcachetest tests the contract
// that every store keeps. The store that replicas share is behind an interface (remote.go); package
// redisstore implements it on Redis.
package convcache
