// Package pins owns the blocks that decode keeps for tickets of this process, from the moment at which decode's params name them until
// decode frees them. It takes values and knows no turn: a turn says that it stores a ticket (Put), takes one (Take), and what becomes of
// the leg that carries it (Claim). What an engine pins is the sum of its pins: nothing else counts it.
//
// Each answer has one pin, and one function, move in pin.go, changes its state. A test compares this table with the code:
//
//	unseen     claimed, stored
//	claimed    putting, sent, due, lost, void
//	putting    claimed, stored, due, lost, void
//	stored     claimed, stored, due, lost, elsewhere, void
//	sent       putting, due, freed, lost, void
//	due        claimed, due, freeing, lost, void
//	freeing    due, freed, lost, void
//	lost       claimed, due, lost, void
//	freed      the end
//	elsewhere  the end
//	void       the end
//
// A stored ticket is claimed by its only taker. What is claimed goes back to the store only if nothing of it was sent. A leg without an answer
// leaves its blocks to a release. The id of a ticket is the name that decode gives to its blocks, so that no two tickets name the same ones;
// what was freed is remembered, and a store that returns such a ticket again gets it used by nobody.
//
//   - pin.go: a pin, its states, and what they come to
//   - pins.go: puts tickets, and has the blocks of the others freed
//   - plan.go: how long a ticket waits in the store for its turn, and its end: package continuation chooses them
//   - runner.go: takes out of the store what is due, and begins the legs of our own
//   - legs.go: those legs, which release blocks or hand them back, and releases that ride on a turn's leg
//   - budget.go: gives up the oldest tickets where they pin more than their share, and those of an engine that leaves
//   - claim.go, outcome.go: a ticket that was taken out of the store, by a turn or to give it up, and what the end of its leg says about the pair
//   - counts.go: what operators and policies are told
//   - deadline.go, generations.go: how long blocks may be read, and which are gone because decode has registered its memory again
//
// # Release
//
// With bidirectional_kv_xfer decode pins the blocks of every finished request until its TTL, and keeps a core busy meanwhile. A release rides on a
// later prefill leg that has no ticket, with remote_num_tokens 0: prefill reads nothing, and tells decode to free the blocks. After five seconds
// without such a leg, or above release.backlog, legs of our own do it, one at a time for each decode engine. They are dropped at their first
// event: a leg that ended by its length would keep a block of prefill for its lease, and a core busy for 25 to 37 s (measured on vLLM 0.32).
// Blocks are released before the ticket's deadline, at the same incarnation of decode, by a prefill engine that has exchanged KV with it. A
// release of blocks that are free changes nothing (measured on vLLM 0.32).
//
// # Hand-back
//
// A ticket pins decode's blocks while its user thinks, and is worth nothing after decode's TTL, nor to a client that names no conversation. One leg
// of our own has prefill read the blocks into its own prefix cache, decode frees them, and a note takes the ticket's place in the store. The
// next turn goes to that prefill engine, which compares tokens by itself.
//
//   - The leg is a text completion of the ids, which stay in the replica that stored the ticket (package proof). Its connection is dropped at the
//     first event, which has the id echo. Measured on vLLM 0.32: decode is free 0.02 to 0.15 s later, prefill's own blocks 0.05 to 0.5 s later.
//   - One leg at a time for each pair, and none to an engine where requests wait for room, that has eight requests or nine tenths of its cache in
//     use, or that picks avoid. A 5xx or silence is a strike against the pair. Where the pair is stopped, prefill's process is over or does not
//     answer for ten seconds, the ticket goes to the instance that the conversation's next turn would go to.
//   - A turn that comes to this replica while the leg runs waits for it, for 2 s at most.
package pins
