// Package keep shows what the learnt choice of what is worth keeping is worth (--hand-back-after auto). For each workload it runs simulated
// engines with Carryover in front of them once for each policy: the learnt one, and fixed ones that keep no ticket, hand each back after a
// second, five or fifteen, or keep each for its life. All serve the same conversations, which have no ids, at the same time on the same machine.
// It prints what decode's KV cache was pinned for, what prefill computed, and what both cost together.
//
// It fails if the learnt choice is worse than the best fixed policy by more than judge.go allows, if a turn fails, or if an engine has read
// anything that it should not have.
package keep
