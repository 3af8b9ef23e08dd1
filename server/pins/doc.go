// Package pins owns the blocks that decode keeps for tickets of this process, from the moment at which decode's params name them until
// decode frees them. It takes values and knows no turn: a turn says that it stores a ticket (Put), takes one (Take), and what becomes of
// the leg that carries it (Claim). What an engine pins is the sum of its pins: nothing else counts it.
//
// Each answer has one pin, and one function, move in pin.go, changes its state. A test compares this table with the code:
//
//	unseen     claimed, stored
//	claimed    putting, sent, due, lost, void
//	putting    claimed, stored, due, lost, void
//	stored     claimed, stored, late, lost, elsewhere, void
//	late       claimed, lost, elsewhere, void
//	sent       putting, due, freed, lost, void
//	due        claimed, due, freeing, lost, void
//	freeing    due, freed, lost, void
//	lost       claimed, void
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
//   - runner.go: takes late tickets out of the store, and begins the legs of our own: queues of pins wait for them
//   - release.go, handback.go: those legs, and releases that ride on a turn's leg
//   - budget.go: gives up the oldest tickets where they pin more than their share, and those of an engine that leaves
//   - claim.go, outcome.go: a ticket that was taken out of the store, by a turn or to give it up, and what the end of its leg says about the pair
//   - counts.go: what operators and policies are told
//   - deadline.go, generations.go: how long blocks may be read, and which are gone because decode has registered its memory again
package pins
