// Package pins owns the blocks that decode keeps for tickets of this process. It owns them from the moment decode's params name them until decode
// frees them. It takes values and knows no turn. A turn reports that it stores a ticket (Put), takes a ticket (Take), and how the leg with the ticket
// has ended (Claim). An engine pins the sum of its pins; nothing else counts it.
//
// Each answer has one pin. Only move, in pin.go, changes its state. A test compares this table of states, each with the states that may follow, with
// the code:
//
//	unseen     claimed, stored
//	claimed    putting, sent, due, lost, void
//	putting    claimed, stored, due, lost, void
//	stored     claimed, stored, late, lost, elsewhere, void
//	late       claimed, stored, lost, elsewhere, void
//	sent       putting, due, freed, lost, void
//	due        freeing, lost, void
//	freeing    due, freed, lost, void
//	lost       claimed, void
//	freed      the end
//	elsewhere  the end
//	void       the end
//
// The store gives a ticket to one taker, which claims its pin. A claimed ticket goes back into the store only if nothing of it was sent. If a leg
// with a ticket gets no answer, the blocks are released later. A ticket's id is made from the name that decode gives to the blocks, so no two tickets
// name the same blocks. The package remembers the ids of freed blocks: if a store returns such a ticket again, nobody uses it.
//
//   - pin.go: a pin, its states and their sums
//   - pins.go: stores tickets, and frees the blocks of all others
//   - plan.go: how long a ticket waits for its turn, and what happens then; package continuation decides
//   - claim.go, outcome.go: a ticket that was taken out of the store, and what the end of its leg says about the pair
//   - runner.go: the rounds that start legs of our own
//   - release.go, handback.go: these legs, and releases on a turn's leg
//   - budget.go: gives up the oldest tickets of an engine that exceed their share of its cache, or all if the engine leaves
//   - counts.go: numbers for operators and policies
//   - deadline.go, generations.go: how long blocks may be read, and which blocks are gone because decode has registered its memory again
package pins
