// Package pins owns the blocks that decode keeps for tickets of this process, from the moment at which decode's params name them until
// decode frees them. It takes values and knows no turn: a turn says that it stores a ticket (Put), takes one (Take), and what becomes of
// the leg that carries it (Claim).
//
//   - pins.go: the owner; puts tickets, gives them up, and says what has to run beside the turns
//   - ledger.go, pinned.go, recent.go: which tickets are in the store, and how much of each engine's KV cache they pin
//   - budget.go, evacuate.go, branches.go: give tickets up: the oldest of an engine where tickets pin more than their share, those of an
//     engine that leaves, branches that a conversation has left, and tickets that no turn has used in time
//   - transitions.go, states.go: the state of each answer's blocks, and which may follow which
//   - release.go, piggyback.go, release_own.go: have decode free the blocks of tickets that no turn will use
//   - handback*.go: have prefill read what decode holds; handback_choice.go chooses for how long a ticket waits for its turn, and its end
//   - claim.go, outcome.go: a ticket that a turn has taken, and what the end of its leg says about the pair
//   - deadline.go, generations.go: how long its blocks may be read, and which are gone because decode has registered its memory again
//
// # States
//
// The blocks of each answer have one state, which changes only as this table says; a test compares it with the code:
//
//	unseen            anything: another process has made the ticket, or its name was forgotten
//	named             stored, hand-back queued, release queued
//	stored            claimed, hand-back queued, release queued, expired, elsewhere, void
//	claimed           stored, reading, hand-back queued, handing back, release queued
//	reading           stored, release queued, freed
//	hand-back queued  stored, handing back, release queued
//	handing back      stored, hand-back queued, release queued, freed
//	release queued    releasing, expired, void
//	releasing         release queued, freed, unknown
//	freed             the end
//	unknown           the end
//	expired           claimed, hand-back queued, release queued
//	elsewhere         claimed, hand-back queued, release queued
//	void              claimed, hand-back queued, release queued
//
// A ticket is stored from the moment before its put, and claimed by its only taker. What is claimed goes back to the store only if nothing
// of it was sent. Reading and handing back begin before a byte is sent; a leg without an answer leaves its blocks to a release, through the
// engine that may still be reading. Blocks that are expired, elsewhere or void as far as this process knows may still have their ticket in
// the store; who takes it has them released. A change that others cause and the table does not have, such as a second ticket for the same
// blocks, is refused, and the ticket dropped. A change of this package's own that the table does not have is counted and logged, and the
// state stays.
//
// # Release
//
// With bidirectional_kv_xfer decode pins the blocks of every finished request until its TTL, and keeps a core busy meanwhile. A ticket that
// no turn will use goes to a bounded list of its decode incarnation: it was ineligible, had no conversation, was displaced or given up, or
// belongs to a branch that the conversation left. It rides on a later prefill leg that has no ticket, with remote_num_tokens 0: prefill
// reads nothing, and tells decode to free the blocks. After five seconds without such a leg, or above release.backlog, legs of our own do
// it, one at a time for each decode engine. They are dropped at their first event: a leg that ended by its length would keep a block of
// prefill for its lease, and a core busy for 25 to 37 s (measured on vLLM 0.32).
//
// A ticket is released once, out of the store, before its deadline, at the same incarnation of decode, and by a prefill engine that has
// exchanged KV with it. If a leg with a ticket had no answer, nobody knows whether decode has freed the blocks. They are released five
// seconds later, when prefill has heard that the leg was dropped, by a leg to the same incarnation of prefill, which handles the abort
// first; or by any, once that process is over. Until then a release could free blocks that prefill still reads. A release of blocks that
// are free changes nothing (measured on vLLM 0.32). Blocks of an answer whose end Carryover didn't see are left to decode's TTL.
//
// As a second line of defence, no two tickets of this process name the same blocks, whether they are stored, on their way or waiting for
// their release. One of two is dropped, with an error in the log.
//
// # Hand-back
//
// A ticket pins decode's blocks while its user thinks, and is worth nothing after decode's TTL, nor to a client that names no conversation.
// So a ticket that no turn has used for hand_back.after is handed back or released. Unless that is a duration, package continuation chooses
// the wait and its end at the end of each answer, by what it has learnt of the tenant's answers of the same kind; a ticket that is to be
// released without a wait is never stored. One leg of our own has prefill read the blocks into its own prefix cache, decode frees them, and
// a note takes the ticket's place in the store. The next turn goes to that prefill engine, which compares tokens by itself. A note is a
// hint for the pick and for what the turn says of itself, and nothing else depends on it.
//
//   - Ids. A ticket's chain has hashes, and the leg needs ids. They stay in the replica that stored the ticket, packed in memory of a
//     fixed size (package proof), and never reach Redis. A ticket whose ids had no room stays a ticket.
//   - At most once. Turns find the ticket until its leg is next; then it is taken by its id, as by any taker. A turn that comes to this
//     replica while the leg runs waits for it, for 2 s at most.
//   - The leg is a text completion of the ids, a stream of up to 64 tokens whose connection is dropped at its first event. Measured on
//     vLLM 0.32: decode is free 0.02 to 0.15 s later, prefill's own blocks 0.05 to 0.5 s later. A leg of one token would end by its length
//     and keep prefill's blocks for their lease of 30 s. The first event has the id echo. A wrong number of ids was seen to poison
//     prefill's cache, so the connector counts them against the params.
//   - The receiver is the incarnation of prefill that computed the prompt. If that is over, it is the instance that the conversation's
//     next turn would go to; without a conversation the blocks are released.
//   - An answer without a conversation id, or one that the store has no place for, is handed back in place of its release if its ids are
//     known and it fills a block. Later prompts with the same beginning go to that instance. A ticket that a longer one of the same
//     history displaces is released: prefill has just computed all of it.
//   - Manners. One leg at a time for each pair. None to an engine where requests wait for room, that has eight requests or nine tenths of
//     its cache in use, or that picks avoid. A 5xx or silence is a strike against the pair. A queue whose engine doesn't answer keeps its
//     tickets and tries again; after ten seconds they go elsewhere.
//   - It is off for connectors that can't do it, for a pair that doesn't answer tickets, and for
//     an incarnation of prefill whose prefix caching is off or that kept nothing for eight turns in a row.
//
// An id echo comes after the fact: an engine that computes other ids than it was sent has filed their KV by then, for legs of turns as for
// these. Package quarantine says what follows.
//
// # Pinned tokens
//
// Each incarnation of decode has a ledger: what tickets in the store pin, and what waits for its release or for decode's TTL. Above
// release.pinned_share of the KV cache, of which each replica has a part, the oldest tickets are taken by their ids and handed back or
// released; so are those above half of it where the cache is full, and half of those of an engine that runs nothing and lets requests wait
// for room (budget.go). A decode engine that leaves, because an operator drains it or a source removed
// it, gets its pins back at once: vLLM's /pause, /sleep and shutdown wait for the last of them. Its tickets are handed back if that takes
// no more than 3 s, and released otherwise. A sleep shows in the params of vLLM 0.33: a ticket whose remote_registration_generation is below
// the highest seen of its engine id is a miss (instance_gone). An id that is configured outlives a restart, and the numbers begin at one
// again: prefill, which shakes hands anew for a higher number only, would read by the registration of the process that has ended, so that
// these tickets are misses, too.
package pins
